"""Looks at messages, and seeks, need only the cells of the parts that they read."""

from typing import Literal

import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.context import Settings
from hourwheel.errors import CellUnavailable, NotFound, Rejected
from hourwheel.groups.peek import PeekStart
from hourwheel.groups.seeks import offsets
from hourwheel.model.messages import NewMessage
from hourwheel.model.routes import LOST_GAP
from hourwheel.ports.storage import CellStorage
from hourwheel.trace.messages import SearchSpan
from tests.failing import FAILURES
from tests.support import AT_ONCE, Bench
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage


@pytest.fixture(params=FAILURES)
def fast(request: pytest.FixtureRequest) -> Outage:
    return Outage(FAILURES[request.param])


@pytest.fixture
def bench(fast: Outage) -> Bench:
    """Returns a bench whose subject ``far`` has the messages a and b in the home cell, c and d in cell fast, which is
    offline, and e in the home cell; the open part of ``away`` is in cell fast."""
    bench = Bench(
        settings=Settings(retry=AT_ONCE, registry_seconds=0), cells={"fast": CellStorage(fast, MemoryBlobs())}
    )
    bench.deployment.cells.add("fast")
    for subject in ("far", "away"):
        bench.deployment.subjects.put(subject)
        bench.deployment.groups.put(subject, "billing")
        bench.send("a", "b", subject=subject)
        bench.deployment.routes.move(subject, 0, "fast")
        bench.send("c", "d", subject=subject)
    bench.deployment.routes.move("far", 0, "home")
    bench.send("e", subject="far")
    fast.down = ALL
    bench.deployment.cells.set_state("fast", "offline")
    return bench


def peek(bench: Bench, subject: str, **start: int) -> tuple[str, int | None, int | None]:
    page = bench.deployment.messages.peek(subject, 0, PeekStart(**start), 10)
    return "".join(str(message.body) for message in page.messages), page.next, page.end


def test_a_peek_ends_at_a_part_out_of_reach_and_goes_on_there(bench: Bench) -> None:
    assert peek(bench, "far") == ("ab", 2, 5)
    assert peek(bench, "far", offset=1) == ("b", 2, 5)
    assert peek(bench, "far", offset=4) == ("e", None, 5)
    assert peek(bench, "far", newest=True) == ("e", 3, 5)
    assert peek(bench, "far", newest=True, offset=1) == ("ba", None, 5)
    for start in ({"offset": 2}, {"offset": 3, "newest": True}):
        with pytest.raises(CellUnavailable, match="cell fast is offline"):
            peek(bench, "far", **start)


def test_a_peek_does_not_need_the_part_that_takes_messages(bench: Bench) -> None:
    assert peek(bench, "away") == ("ab", 2, None)
    assert peek(bench, "away", offset=1, newest=True) == ("ba", None, None)
    for start in ({"offset": 9}, {"newest": True}):
        with pytest.raises(CellUnavailable):
            peek(bench, "away", **start)


def test_a_message_in_a_cell_that_answers_is_shown(bench: Bench) -> None:
    for subject, place, body in (("far", "0:1", "b"), ("far", "0:4", "e"), ("away", "0:0", "a")):
        (trace,) = bench.deployment.messages.trace(subject, place, SearchSpan()).messages
        assert trace.message is not None
        assert trace.message.body == body
        assert [group.state for group in trace.groups] == ["waiting"]
    with pytest.raises(CellUnavailable):
        bench.deployment.messages.trace("far", "0:3", SearchSpan())
    with pytest.raises(NotFound, match="ends at offset 5"):
        bench.deployment.messages.trace("far", "0:5", SearchSpan())


def test_the_place_of_a_lost_message_says_so(bench: Bench) -> None:
    bench.deployment.cells.remove("fast", lost=True)
    for subject, place in (("far", "0:2"), ("away", "0:1500"), ("away", f"0:{1 + LOST_GAP}")):
        with pytest.raises(NotFound, match="was lost with cell fast; the lake keeps what was archived") as error:
            bench.deployment.messages.trace(subject, place, SearchSpan())
        assert error.value.slug == "message-unknown"
    with pytest.raises(NotFound, match="ends at offset"):
        bench.deployment.messages.trace("away", f"0:{2 + LOST_GAP}", SearchSpan())
    assert peek(bench, "away", offset=1500) == ("", None, 2 + LOST_GAP)
    with pytest.raises(Rejected, match="beyond the queue's end"):
        peek(bench, "away", offset=3 + LOST_GAP)


def test_a_seek_in_one_queue_needs_the_cells_of_that_queue(bench: Bench, fast: Outage) -> None:
    fast.down = frozenset()
    bench.clock.pass_time(60)
    bench.deployment.cells.set_state("fast", "normal")
    bench.deployment.subjects.put("two", queues=2)
    bench.deployment.groups.put("two", "billing")
    bench.deployment.produce("two", [NewMessage(body="x", queue=queue, key=str(queue)) for queue in range(2)])
    bench.deployment.routes.move("two", 1, "fast")
    fast.down = ALL
    bench.deployment.cells.set_state("fast", "offline")
    assert offsets(bench.deployment.seeks().seek_offset("two", "billing", 0, 1)) == {0: 1}
    assert bench.deployment.seeks(dry_run=True).seek_offset("two", "billing", 0, 0)[0].served_again == 1
    with pytest.raises(CellUnavailable, match="the group was not moved"):
        bench.deployment.seeks().seek_offset("two", "billing", 1, 0)


def test_a_dry_run_that_cannot_count_says_so(bench: Bench) -> None:
    with pytest.raises(CellUnavailable, match="cell fast cannot be reached, so messages there cannot be counted"):
        bench.deployment.seeks(dry_run=True).seek("far", "billing", "end")
    with pytest.raises(CellUnavailable, match="cell fast cannot be reached, so the group was not moved"):
        bench.deployment.seeks().seek("far", "billing", to="end")


@pytest.fixture
def split(bench: Bench, fast: Outage) -> Bench:
    """Returns the bench with an ordered and an unordered group of a subject ``two``, whose second queue is in cell
    fast, which does not answer. In each queue one message is leased and one
    waits; the ordered group has to retry another one."""
    fast.down = frozenset()
    bench.clock.pass_time(60)
    bench.deployment.cells.set_state("fast", "normal")
    bench.deployment.subjects.put("two", queues=2)
    bench.deployment.routes.move("two", 1, "fast")
    for queue in range(2):
        bench.deployment.produce("two", [NewMessage(body=key, queue=queue, key=key) for key in "xy"])
    for group in ("ordered", "plain"):
        bench.deployment.groups.put("two", group, ordered=group == "ordered")
        failed, done = ([0], []) if group == "ordered" else ([], [0])
        for pull in bench.pull(subject="two", group=group):
            bench.settle(pull, subject="two", group=group, retry=failed, ack=done)
    bench.deployment.produce("two", [NewMessage(body="z", queue=queue, key="y") for queue in range(2)])
    bench.deployment = bench.another_process()
    fast.down = ALL
    return bench


@pytest.mark.parametrize("group", ["ordered", "plain"])
def test_the_lag_of_a_group_counts_the_queues_in_reach(split: Bench, group: str) -> None:
    lag = split.deployment.groups.lag("two", group)
    assert (lag.waiting, lag.in_flight, lag.cells_out) == (1, 1, ["fast"])
    assert lag.retrying == (1 if group == "ordered" else 0)


@pytest.mark.parametrize("state", ["normal", "offline"])
def test_retries_in_the_queues_in_reach_are_counted(split: Bench, state: Literal["normal", "offline"]) -> None:
    split.deployment.cells.set_state("fast", state)
    counts = split.deployment.groups.state("two", "ordered").retries(
        split.deployment.pending_counts, split.deployment.opener
    )
    assert (sum(count.messages for count in counts.attempts), counts.complete) == (1, False)


@pytest.mark.parametrize("state", ["normal", "offline"])
@pytest.mark.parametrize("group", ["ordered", "plain"])
def test_consumers_and_leases_in_the_queues_in_reach_are_listed(
    split: Bench, group: str, state: Literal["normal", "offline"]
) -> None:
    split.deployment.cells.set_state("fast", state)
    (consumer,), cells_out = split.deployment.groups.consumers("two", group)
    assert cells_out == ["fast"]
    leases = split.deployment.groups.state("two", group).leases(split.deployment.leases)
    assert (consumer.consumer, consumer.in_flight) == ("c1", 1)
    assert (sum(lease.messages for lease in leases.leases), leases.complete) == (1, False)


@pytest.mark.parametrize("state", ["normal", "offline"])
@pytest.mark.parametrize("group", ["ordered", "plain"])
def test_a_consumer_leaves_the_queues_in_reach(split: Bench, group: str, state: Literal["normal", "offline"]) -> None:
    split.deployment.cells.set_state("fast", state)
    before = split.deployment.groups.lag("two", group).waiting
    assert split.deployment.groups.leave("two", group, "c1") == (1, ["fast"])
    lag = split.deployment.groups.lag("two", group)
    assert (lag.in_flight, lag.waiting + lag.retrying >= before + 1) == (0, True)


@pytest.mark.parametrize("down", ALL - {"counter", "counters", "add"})
def test_a_cell_that_fails_between_two_reads_is_out_of_reach_for_the_overview(
    split: Bench, fast: Outage, down: str
) -> None:
    fast.down = frozenset({down})
    page = split.deployment.overview.groups("two", "", 10)
    numbers = {group.group: (group.waiting, group.in_flight, group.retrying) for group in page.groups}
    in_reach, whole = {"ordered": (1, 1, 1), "plain": (1, 1, 0)}, {"ordered": (2, 2, 2), "plain": (2, 2, 0)}
    for group in ("ordered", "plain"):
        bounds = zip(in_reach[group], numbers[group], whole[group], strict=True)
        assert all(low <= number <= high for low, number, high in bounds)
    # Not every call is needed for the numbers.
    assert (page.cells_out, page.complete) == ((["fast"], False) if numbers != whole else ([], True))
