"""Many messages of one subject that fall due at one instant do not hold up those of other subjects."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.delay import dispatch, outgoing_batches
from hourwheel.delay.due_messages import DueMessages
from hourwheel.delay.outgoing_batches import AGAIN, DUE
from hourwheel.delay.ownership import DispatchLog
from hourwheel.delay.timing import DueGroup, TimingWheel
from hourwheel.delay.wheel import Wheel
from hourwheel.errors import Unavailable
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.delay.test_wheel import bucket_of, wheel_of

SLICE = 10


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(dispatch, "STEP_PICKS", SLICE)
    store = CallByCall(MemoryStore()) if request.param == "call by call" else MemoryStore()
    return Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))


def send(bench: Bench, subject: str, *bodies: str, due_ms: int) -> list[str]:
    messages = [NewMessage(body=body, deliver_at=rfc3339(due_ms)) for body in bodies]
    return [placed.scheduled_id or "" for placed in bench.deployment.produce(subject, messages)]


def opened(bench: Bench) -> Wheel:
    wheel = wheel_of(bench, bucket_of(bench))
    assert wheel._ownership.take()
    wheel.open()
    return wheel


def steps(bench: Bench, wheel: Wheel) -> list[dict[str, int]]:
    """Returns how many messages each step of the wheel has handed over, by subject."""
    found = []
    for _, row in DispatchLog(bench.deployment.context, wheel.bucket).rows():
        counts: dict[str, int] = {}
        for transfer in row.transfers:
            subject = transfer.log.partition("~")[0]
            counts[subject] = counts.get(subject, 0) + len(transfer.picks)
        found += [counts] if counts else []
    return found


def turn(bench: Bench, wheel: Wheel, between: Callable[[int], object] = lambda number: None) -> None:
    """Makes a turn, and calls ``between`` after each of its steps but the last, with the number of the step."""
    number = 0

    def pause(seconds: float) -> bool:
        nonlocal number
        number += 1
        between(number)
        return True

    wheel.turn(pause)


@pytest.mark.parametrize("alone", [False, True])
def test_a_message_that_is_due_with_a_herd_waits_for_no_more_than_a_slice_of_it(bench: Bench, alone: bool) -> None:
    due_ms = bench.clock.ms + 5_000
    herd = [str(number) for number in range(10 * SLICE)]
    for bodies in [[body] for body in herd] if alone else [herd]:
        send(bench, "herd", *bodies, due_ms=due_ms)
    send(bench, "orders", "a", due_ms=due_ms)
    wheel = opened(bench)
    bench.clock.pass_time(5)
    turn(bench, wheel)
    found = steps(bench, wheel)
    assert "orders" in found[0]
    assert sum(counts.get("herd", 0) for counts in found) == 10 * SLICE
    assert max(sum(counts.values()) for counts in found) == SLICE


def test_a_message_that_falls_due_or_comes_during_a_herd_has_its_turn_in_the_next_step(bench: Bench) -> None:
    due_ms = bench.clock.ms + 5_000
    send(bench, "herd", *map(str, range(10 * SLICE)), due_ms=due_ms)
    send(bench, "known", "a", due_ms=due_ms + 500)
    wheel = opened(bench)
    bench.clock.pass_time(5)

    def between(number: int) -> None:
        if number == 2:
            bench.clock.ms = due_ms + 500
        if number == 4:
            send(bench, "fresh", "b", due_ms=bench.clock.ms + 100)
            bench.clock.pass_time(0.1)

    turn(bench, wheel, between)
    found = steps(bench, wheel)
    # A wheel with ticks hands over what was due at its last tick.
    assert [[*counts] for counts in found[:2]] == [["herd"]] * 2
    assert {subject for counts in found[2:4] for subject in counts} == {"herd", "known"}
    turn(bench, wheel)
    bench.clock.pass_time(0.5)
    turn(bench, wheel)
    assert sum(counts.get("fresh", 0) for counts in steps(bench, wheel)) == 1
    assert bench.settings.tick_ms


def test_messages_of_quiet_subjects_have_steps_of_their_own(bench: Bench) -> None:
    due_ms = bench.clock.ms + 5_000
    send(bench, "herd", *map(str, range(4 * SLICE)), due_ms=due_ms)
    for number in range(1, 4):
        send(bench, "quiet", "a", due_ms=due_ms + 500 * number)
    wheel = opened(bench)
    bench.clock.pass_time(5)
    turn(bench, wheel, lambda number: bench.clock.pass_time(0.25))
    served = [[*counts] for counts in steps(bench, wheel)]
    assert served == [["herd"], ["herd"], ["quiet"], ["herd"], ["quiet"], ["herd"]]


def test_a_herd_waits_for_one_step_of_the_others() -> None:
    due = DueMessages(set())
    due.add(0, range(1_000))
    served = []
    for number in range(4):
        due.add(1, [2_000 + number])
        served.append([destination for destination, _ in due.slices(10, 0)])
    assert served == [[1], [0], [1], [0]]


def test_a_discarded_message_of_a_herd_is_left_out_of_its_slice() -> None:
    discarded: set[int] = set()
    due = DueMessages(discarded)
    wheel = TimingWheel(0, discarded)
    wheel.add_all(range(100), 1_000, destination=2)
    discarded.update((3, 500))
    for positions, destination in wheel.take(1_000):
        assert destination is not None
        due.add(destination, positions)
    assert due.slices(10, 0) == [(2, [0, 1, 2, *range(4, 10)])]
    assert discarded == {500}
    assert wheel.waiting == 0
    assert due.waiting == 90


def test_a_step_decodes_a_bounded_number_of_rows(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_batches, "_DECODED_BYTES", 12_000)
    due_ms = bench.clock.ms + 5_000
    for number in range(2 * SLICE):
        # One message of each row is due with the herd, as where many times are spread over an hour.
        later = [NewMessage(body="later", deliver_at=rfc3339(due_ms + 60_000 + other)) for other in range(100)]
        first = NewMessage(body=str(number), deliver_at=rfc3339(due_ms))
        bench.deployment.produce("herd", [first, *later])
    send(bench, "quiet", "a", due_ms=due_ms)
    wheel = opened(bench)
    bench.clock.pass_time(5)
    turn(bench, wheel)
    found = steps(bench, wheel)
    assert found[0] == {"quiet": 1}
    assert [counts["herd"] for counts in found[1:]] == [2] * SLICE
    assert bench.bodies(subject="herd") == [str(number) for number in range(2 * SLICE)]


def test_a_wheel_that_rests_reads_ahead_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_batches, "_DECODED_BYTES", 10_000)
    bench = Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0, tick_ms=0))
    due_ms = bench.clock.ms + 5_000
    for number in range(10):
        send(bench, "orders", str(number), due_ms=due_ms)
    wheel = opened(bench)
    pieces = []
    for _ in range(20):
        turn(bench, wheel)
        pieces.append(wheel._prepared(1_000))
    # A new message would be read between two pieces; then the wheel rests, and reads nothing twice.
    assert pieces == [0, 0, 0, *[1_000] * 17]


def test_a_step_reads_the_records_of_its_subjects_together(bench: Bench) -> None:
    bench.settings = Settings(retry=AT_ONCE, registry_seconds=60)
    names = [f"s{number}" for number in range(SLICE)]
    for name in names:
        send(bench, name, "a", due_ms=bench.clock.ms + 5_000)
    bench.deployment = bench.another_process()
    wheel = opened(bench)
    bench.clock.pass_time(5)
    with patch.object(bench.store, "get_keys", wraps=bench.store.get_keys) as reads:
        turn(bench, wheel)
    assert [len(call.args[0]) for call in reads.call_args_list] == [SLICE]
    assert [bench.bodies(subject=name) for name in names] == [["a"]] * SLICE


def test_without_ticks_a_short_delay_passes_a_herd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "STEP_PICKS", SLICE)
    bench = Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0, tick_ms=0))
    due_ms = bench.clock.ms + 5_000
    send(bench, "herd", *map(str, range(10 * SLICE)), due_ms=due_ms)
    wheel = opened(bench)
    bench.clock.pass_time(5)

    def between(number: int) -> None:
        if number == 3:
            send(bench, "fresh", "b", due_ms=bench.clock.ms + 20)
            bench.clock.ms += 20

    turn(bench, wheel, between)
    assert [number for number, counts in enumerate(steps(bench, wheel)) if "fresh" in counts] == [3]


def test_a_message_that_is_cancelled_while_it_waits_for_its_turn_is_not_handed_over(bench: Bench) -> None:
    due_ms = bench.clock.ms + 5_000
    ids = send(bench, "herd", *map(str, range(10 * SLICE)), due_ms=due_ms)
    wheel = opened(bench)
    bench.clock.pass_time(5)

    def between(number: int) -> None:
        if number == 2:
            with pytest.raises(Unavailable):  # it has stored its marker, which the wheel reads in the next step
                bench.another_process().delayed.cancel(ids[-1])

    turn(bench, wheel, between)
    assert sum(counts["herd"] for counts in steps(bench, wheel)) == 10 * SLICE - 1
    assert bench.deployment.delayed.cancel(ids[-1]).state == "cancelled"


def test_a_herd_of_large_messages_leaves_room_for_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_batches, "_STEP_BYTES", 1_000)
    due_ms = bench.clock.ms + 5_000
    for number in range(SLICE // 2):
        send(bench, "herd", f"{number} " + "x" * 900, due_ms=due_ms)
    send(bench, "orders", "a", due_ms=due_ms)
    wheel = opened(bench)
    bench.clock.pass_time(5)
    turn(bench, wheel)
    found = steps(bench, wheel)
    assert "orders" in found[1]
    assert sum(counts.get("herd", 0) for counts in found) == SLICE // 2


def test_large_messages_keep_the_order_of_their_due_times(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing_batches, "_STEP_BYTES", 1_000)
    for number in reversed(range(20)):
        send(bench, "orders", f"{number:02} " + "x" * 900, due_ms=bench.clock.ms + 5_000 + 500 * number)
    wheel = opened(bench)
    bench.clock.pass_time(16)
    turn(bench, wheel)
    assert [str(body)[:2] for body in bench.bodies(subject="orders")] == [f"{number:02}" for number in range(20)]


def test_retries_of_one_group_take_turns_with_messages_for_all_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "STEP_PICKS", SLICE)
    settings = Settings(retry=RetryPolicy(first_seconds=5), registry_seconds=0)
    bench = Bench(CallByCall(MemoryStore()), settings=settings)
    bench.deployment.groups.put("orders", "billing")
    bench.send(*map(str, range(5 * SLICE)))
    for pull in bench.pull(100):
        bench.settle(pull, retry=list(range(len(pull.messages))))
    send(bench, "orders", "later", due_ms=bench.clock.ms + 5_000)
    wheel = opened(bench)
    bench.clock.pass_time(7)
    turn(bench, wheel)
    rows = [row for _, row in DispatchLog(bench.deployment.context, wheel.bucket).rows() if row.transfers]
    kinds = [{transfer.kind for transfer in row.transfers} for row in rows]
    assert kinds[0] == {DUE}
    assert kinds[1:] == [{AGAIN}] * (len(kinds) - 1)
    assert len(kinds) > 4


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), min_size=1, max_size=12), st.integers(1, 8))
def test_each_destination_waits_for_at_most_one_slice_of_each_other(added: list[tuple[int, int]], most: int) -> None:
    due, sent = DueMessages(set()), dict[int, list[int]]()
    number = 0
    for destination, count in added:
        positions = list(range(number, number + count))
        number += count
        due.add(destination, positions)
        sent.setdefault(destination, []).extend(positions)
    waited: dict[int, int] = dict.fromkeys(sent, 0)
    got: dict[int, list[int]] = {destination: [] for destination in sent}
    while due.ready(0):
        slices = due.slices(most, 0)
        assert 0 < sum(len(positions) for _, positions in slices) <= most
        served = {destination for destination, _ in slices}
        for destination in sent:
            left = len(got[destination]) < len(sent[destination])
            waited[destination] = waited[destination] + 1 if left and destination not in served else 0
            assert waited[destination] <= len(sent)
        for destination, positions in slices:
            got[destination] += positions
    assert got == sent


def test_what_has_no_room_in_a_step_comes_first_in_the_next_one() -> None:
    discarded: set[int] = set()
    due = DueMessages(discarded)
    for destination in range(3):
        due.add(destination, range(10 * destination, 10 * destination + 3))
    slices = due.slices(9, 0)
    due.put_back(slices, [[1, 2], [10, 11, 12], [20, 21, 22]])
    assert due.slices(3, 0) == [(1, [10]), (2, [20]), (0, [1])]
    discarded.add(21)
    assert due.slices(9, 0) == [(1, [11, 12]), (2, [22]), (0, [2])]
    assert not due.ready(0)


def test_a_herd_is_taken_apart_from_the_messages_of_others() -> None:
    wheel = TimingWheel(0, set())
    wheel.add(1, 1_000, destination=1)
    for packed in range(100, 300):
        wheel.add(packed, 1_000, destination=2)
    wheel.add_all(range(300, 1_000), 1_000, destination=2)
    wheel.add(2, 999, destination=1)
    assert wheel.next_ms() == 999
    assert wheel.waiting == 902
    assert wheel.upcoming(3) == [2]
    first, mixed, herd = wheel.take(1_000)
    assert first == DueGroup([2])
    assert mixed.destination is None
    assert herd.destination == 2
    assert len(herd.positions) > 800
    assert [*mixed.positions, *herd.positions] == [1, *range(100, 1_000)]
    assert wheel.waiting == 0
    assert wheel.next_ms() is None
