"""Two rare states at once: each alone is usual, and a test of one does not meet the other."""

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Rejected, Unavailable
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, RetryLater, Settlement
from hourwheel.ordered import key_state_cache
from hourwheel.ordered.later_messages import BLOCK
from hourwheel.ports.storage import CellStorage, Key, Record, Refused, Table
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.routing import queue_of
from tests.support import AT_ONCE, Bench, CallByCall

KEYS = "abcdefghijklmnop"
SETTINGS = Settings(retry=AT_ONCE, registry_seconds=0)


class CutOff(CallByCall):
    """A store that fails once before the put into a table that comes after ``puts_left`` others; -1: never."""

    puts_left = -1
    table = Table.CONSUME

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if key.table is self.table:
            self.puts_left -= 1
            if self.puts_left == -1:
                raise Unavailable("cut off")
            self.puts_left = max(-1, self.puts_left)
        return super().put(key, record, expect=expect)


@pytest.mark.parametrize("added", [4, 5, 7])
def test_a_repeat_divides_two_parts_of_a_batch(added: int) -> None:
    store = CutOff(MemoryStore())
    bench = Bench(store, settings=SETTINGS)
    bench.deployment.subjects.put("orders", queues=3)
    bench.deployment.groups.put("orders", "billing", ordered=True)
    once = IdempotencyKey("once", b"digest")

    def send() -> list[tuple[int | None, int | None]]:
        messages = [NewMessage(body=key, key=key) for key in KEYS]
        return [(each.queue, each.offset) for each in bench.another_process().produce("orders", messages, once)]

    store.puts_left = 0
    with pytest.raises(Unavailable):
        send()
    bench.clock.pass_time(2)
    for queue in range(3):
        bench.deployment.produce("orders", [NewMessage(body="later", queue=queue)])
    bench.clock.pass_time(2)
    for pull in bench.pull():
        bench.settle(pull)  # readers have filled the rows of all three parts
    bench.deployment.subjects.put("orders", queues=added)
    placed = send()
    assert [queue for queue, _ in placed] == [queue_of(key, "", added) for key in KEYS]
    bench.deployment.subjects.put("orders", queues=added + 1)
    assert send() == placed
    taken = bench.take()
    assert sorted(message.body or "" for message in taken) == sorted(KEYS)
    where = {message.body: (message.queue, message.offset) for message in taken}
    assert [where[key] for key in KEYS] == placed, "the answer says where each message is"


@pytest.mark.parametrize("finisher", ["the operator again", "a pull elsewhere", "the sweeper"])
def test_a_decision_is_cut_off_between_its_two_writes(finisher: str) -> None:
    store = CutOff(MemoryStore())
    bench = Bench(store, settings=SETTINGS)
    bench.deployment.groups.put("orders", "billing", ordered=True, when_dead="stop", max_attempts=1)
    for body in ("a1", "b1", "a2"):
        bench.send(body, key=body[0])
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0, 1])
    store.puts_left, store.calls = 0, []
    with pytest.raises(Unavailable):
        bench.deployment.groups.decide("orders", "billing", None, "dead")
    assert ("put", Table.PULL) in store.calls, "the decision itself was stored"
    assert bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages == [], (
        "the dead letters were not"
    )
    bench.clock.pass_time(61)
    other = bench.another_process()
    if finisher == "the operator again":
        assert other.groups.decide("orders", "billing", None, "dead") == 0, "nothing is left to decide"
    elif finisher == "the sweeper":
        other.sweeper.sweep()
    assert bench.bodies() == ["a2"]
    bench.clock.pass_time(61)
    other.sweeper.sweep()
    dead = other.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert sorted(message.body or "" for message in dead) == ["a1", "b1"]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("to", "first"), [("start", 0), (1, 1), (3, 3), (4, 4)])
def test_a_seek_goes_back_over_several_parts(to: str | int, first: int, *, ordered: bool) -> None:
    bench = moving(ordered=ordered)
    for number, cell in enumerate(("two", "three", "two")):
        bench.send(f"{2 * number}", f"{2 * number + 1}", key="k")
        bench.deployment.routes.move("orders", 0, cell)
    bench.send("6", "7", key="k")
    while pulls := bench.pull():
        for pull in pulls:
            bench.settle(pull)
    for _ in range(2):  # also for a process that has seen the parts at their ends
        if isinstance(to, int):
            bench.deployment.seeks().seek_offset("orders", "billing", 0, to)
        else:
            bench.deployment.seeks().seek("orders", "billing", to="start")
        assert bench.deployment.groups.lag("orders", "billing").waiting == 8 - first
        assert handled(bench) == [str(number) for number in range(first, 8)]
        assert bench.deployment.groups.lag("orders", "billing").waiting == 0


def moving(*, ordered: bool) -> Bench:
    cells = {name: CellStorage(CallByCall(MemoryStore()), MemoryBlobs()) for name in ("two", "three")}
    bench = Bench(CallByCall(MemoryStore()), settings=SETTINGS, cells=cells)
    for name in cells:
        bench.deployment.cells.add(name)
    bench.deployment.groups.put("orders", "billing", ordered=ordered)
    return bench


def handled(bench: Bench) -> list[str | None]:
    bodies: list[str | None] = []
    while pulls := bench.pull():
        bodies += [message.body for pull in pulls for message in pull.messages]
        assert [bench.settle(pull) for pull in pulls] == ["settled"] * len(pulls)
    return bodies


@pytest.mark.parametrize("cells", [("two", "three", "two"), ("two", "home", "two"), ("two", "home", "three", "two")])
@pytest.mark.parametrize("ordered", [False, True])
def test_a_queue_moves_to_a_cell_away_and_there_again(cells: tuple[str, ...], *, ordered: bool) -> None:
    bench = moving(ordered=ordered)
    offsets = [bench.send("0", key="k")[0].offset]
    for number, cell in enumerate(cells, 1):
        bench.deployment.routes.move("orders", 0, cell)
        offsets.append(bench.another_process().produce("orders", [NewMessage(body=str(number), key="k")])[0].offset)
    assert offsets == [*range(len(cells) + 1)], "no offset is given twice, and none is left out"
    logs = bench.deployment.registry.subject("orders").queue_logs()
    assert len(set(logs)) == len(logs) == len(cells) + 1, "the second stay in a cell has a log of its own"
    assert bench.deployment.groups.lag("orders", "billing").waiting == len(offsets)
    assert handled(bench) == [str(number) for number in range(len(offsets))]


@pytest.mark.parametrize("snapshot_rows", [1, 500])
@pytest.mark.parametrize("second", ["release", "retry"])
def test_a_release_and_a_retry_in_two_settlements_with_more_than_a_block_behind(
    monkeypatch: pytest.MonkeyPatch, second: str, snapshot_rows: int
) -> None:
    monkeypatch.setattr(key_state_cache, "_SNAPSHOT_ROWS", snapshot_rows)
    bench = Bench(CallByCall(MemoryStore()), settings=SETTINGS)
    bench.deployment.groups.put("orders", "billing", ordered=True, max_attempts=5)
    bodies = [f"{number:03}" for number in range(6 * BLOCK + 7)]
    bench.send(*bodies[:3], key="k")
    for body in bodies[3:]:
        bench.send(body, key="k")
    (pull,) = bench.pull(3)
    assert [message.body for message in pull.messages] == bodies[:3]
    assert bench.pull() == [], "all others are parked behind their key"
    both = [{"retry": [RetryLater(index=0, delay="1s")]}, {"release": [2]}]
    for how in both if second == "release" else reversed(both):
        (answer,) = bench.deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, ack=[], **how)])
        assert answer.status in ("open", "settled", "stale")
    bench.clock.pass_time(31)
    other = bench.another_process()
    other.sweeper.sweep()
    for lag in (bench.deployment.groups.lag("orders", "billing"), other.groups.lag("orders", "billing")):
        assert lag.waiting + lag.retrying == len(bodies)
    found: list[str | None] = []
    while pulls := other.pull("orders", "billing", PullRequest(consumer="c2", max_messages=BLOCK // 2)).pulls:
        found += [message.body for each in pulls for message in each.messages]
        answers = other.settle("orders", "billing", [Settlement(receipt=each.receipt) for each in pulls])
        assert {answer.status for answer in answers} == {"settled"}
    assert found == bodies
    assert bench.deployment.groups.lag("orders", "billing").waiting == 0


@pytest.fixture
def three() -> tuple[Bench, str, str]:
    """Returns a group of which a pull leased three messages, its receipt, and that of a pull that released them."""
    bench = Bench(CallByCall(MemoryStore()), settings=SETTINGS)
    bench.deployment.groups.put("orders", "billing")
    bench.send("a", "b", "c")
    (ended,) = bench.pull()
    assert bench.settle(ended, release=[0, 1, 2]) == "settled"
    (pull,) = bench.pull()
    return bench, pull.receipt, ended.receipt


@pytest.mark.parametrize("places", [(0,), (1,), (0, 2)])
def test_settlements_beside_a_stale_receipt_are_carried_out(
    three: tuple[Bench, str, str], places: tuple[int, ...]
) -> None:
    bench, receipt, ended = three
    asked = [Settlement(receipt=receipt, ack=[0], retry=[1], dead=[2])]
    for place in places:
        asked.insert(place, Settlement(receipt=ended))
    answers = [answer.status for answer in bench.deployment.settle("orders", "billing", asked)]
    assert answers == ["stale" if at in places else "settled" for at in range(len(asked))]
    assert [(message.body, message.attempt) for message in bench.take()] == [("b", 2)]
    assert [
        each.body for each in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["c"]
    bench.clock.pass_time(60)
    assert bench.bodies() == ["b"], "what was acknowledged does not come back"


def test_a_receipt_of_another_group_ends_the_request_before_anything_is_carried_out(
    three: tuple[Bench, str, str],
) -> None:
    bench, receipt, _ = three
    bench.deployment.groups.put("orders", "mail")
    (foreign,) = bench.pull(group="mail")
    asked = [Settlement(receipt=receipt), Settlement(receipt=foreign.receipt)]
    with pytest.raises(Rejected):
        bench.deployment.settle("orders", "billing", asked)
    bench.clock.pass_time(60)
    # Messages whose lease ended come alone.
    assert sorted(body or "" for body in handled(bench)) == ["a", "b", "c"]
    assert bench.bodies(group="mail") == ["a"]
