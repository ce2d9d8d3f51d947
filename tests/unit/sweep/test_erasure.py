"""Subjects and groups that were deleted are erased, also where the deletion was cut off."""

from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import NotFound, Unavailable
from hourwheel.ports.storage import Key, Table
from tests.support import AT_ONCE, Bench, CallByCall


def stored(bench: Bench) -> list[str]:
    """Returns the partitions of a subject with four queues that are not empty."""
    head = "orders~1"
    logs = [f"{head}/{queue}" for queue in range(4)] + [f"{head}/{kind}/billing~1" for kind in ("retry", "dead")]
    left = [log for log in logs if bench.store.scan(Table.CONSUME, log, limit=1)]
    pulls = [f"billing~1@{log}" for log in logs] + [f"dead@{head}/dead/billing~1"]
    return left + [name for name in pulls if bench.store.scan(Table.PULL, name, limit=1)]


@pytest.fixture
def full() -> Bench:
    """Returns a subject of four queues with a group that has retries and dead letters."""
    bench = Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.deployment.subjects.put("orders", queues=4)
    for number in range(8):
        bench.send("a", "b", key=str(number))
    for pull in bench.pull():
        bench.settle(pull, retry=[0], dead=[1])
    assert len(stored(bench)) == 10
    return bench


def interrupted(bench: Bench, work: Callable[[], None], trims: int) -> None:
    """Does it up to the ``trims``-th removal."""
    store = bench.store
    trim, seen = store.trim, []

    def cut(table: Table, partition: str, *, below: str) -> None:
        seen.append(partition)
        if len(seen) > trims:
            raise Unavailable("cut off")
        trim(table, partition, below=below)

    store.trim = cut
    with pytest.raises(Unavailable):
        work()
    store.trim = trim


FINISHERS: dict[str, Callable[[Bench], object]] = {
    "another deletion": lambda bench: bench.deployment.subjects.delete("orders"),
    "the sweeper": lambda bench: bench.deployment.sweeper.sweep(),
    "who makes it again": lambda bench: bench.deployment.subjects.put("orders"),
}


@pytest.mark.parametrize("finish", FINISHERS.values(), ids=FINISHERS)
@pytest.mark.parametrize("trims", [0, 3, 8])
def test_a_deletion_of_a_subject_that_was_cut_off_is_finished(
    full: Bench, trims: int, finish: Callable[[Bench], object]
) -> None:
    interrupted(full, lambda: full.deployment.subjects.delete("orders"), trims)
    finish(full)
    assert stored(full) == []
    assert all(full.store.counter(f"orders~1/{queue}").sealed for queue in range(4))


@pytest.mark.parametrize("trims", [0, 3, 8])
def test_a_send_or_pull_after_a_deletion_that_was_cut_off_waits_for_the_sweeper(full: Bench, trims: int) -> None:
    interrupted(full, lambda: full.deployment.subjects.delete("orders"), trims)
    before = stored(full)
    for call in (lambda: full.send("new"), full.pull):
        with pytest.raises(Unavailable, match="the deletion of subject 'orders' is not finished"):
            call()
    assert stored(full) == before
    full.deployment.sweeper.sweep()
    full.send("new")
    assert full.bodies() == ["new"]


def test_a_deletion_that_is_done_is_not_done_again(full: Bench) -> None:
    full.deployment.subjects.delete("orders")
    with pytest.raises(NotFound):
        full.deployment.subjects.delete("orders")
    calls = full.store.calls
    full.deployment.sweeper.sweep()  # a new process reads where the last sweep stopped
    calls.clear()
    full.deployment.sweeper.sweep()
    # Subjects, buckets, pushes, moves and orphans: nothing for each that was deleted.
    assert calls == [*[("scan", Table.META)] * 5, ("collect", Table.KEYS)]


@pytest.mark.parametrize("trims", [0, 3])
@pytest.mark.parametrize("finisher", ["another deletion", "the sweeper", "who makes it again"])
def test_a_deletion_of_a_group_that_was_cut_off_is_finished(full: Bench, trims: int, finisher: str) -> None:
    queues = [f"orders~1/{queue}" for queue in range(4)]
    kept = [log for log in queues if full.store.scan(Table.CONSUME, log, limit=1)]
    interrupted(full, lambda: full.deployment.groups.delete("orders", "billing"), trims)
    finish = {
        "another deletion": lambda: full.deployment.groups.delete("orders", "billing"),
        "the sweeper": full.deployment.sweeper.sweep,
        "who makes it again": lambda: full.deployment.groups.put("orders", "billing"),
    }
    finish[finisher]()
    assert stored(full) == kept
    assert full.store.counter("orders~1/retry/billing~1").sealed


def test_the_sweeper_removes_rows_below_the_trim_mark_that_a_crash_has_left(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("a")
    (left,) = bench.store.scan(Table.CONSUME, "orders~1/0", limit=9)
    bench.clock.pass_time(61)
    bench.deployment.sweeper.sweep()
    bench.store.put(Key(Table.CONSUME, "orders~1/0", left[0]), left[1], expect=None)
    bench.deployment.sweeper.sweep()
    assert bench.store.scan(Table.CONSUME, "orders~1/0", limit=9) == []
