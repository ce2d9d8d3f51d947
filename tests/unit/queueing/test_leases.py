"""Leases are looked at only when one may be over."""

from typing import Any

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.ports import Key, Record, Table
from hourwheel.queueing.pull_log import PullLog, pull_logs
from tests.support import AT_ONCE, Bench, CallByCall


class Unread(dict[int, Any]):
    """Open leases that must not be scanned."""

    def values(self) -> Any:
        raise AssertionError

    def __iter__(self) -> Any:
        raise AssertionError


def test_a_look_at_leases_that_are_not_over_does_not_scan_them(bench: Bench) -> None:
    bench.send("a", "b", "c")
    held = [bench.pull(1, lease=30)[0] for _ in range(2)] + bench.pull(1, lease=60)
    bench.clock.pass_time(2)
    assert bench.pull(1) == []
    leases, directory = bench.cell.leases, bench.cell.registry
    subject = directory.subject("orders", create=False)
    group = directory.group(subject, "billing", create=False)
    log = next(log for log in pull_logs(bench.cell.context, subject, group) if log.queue == 0)
    watch = leases._watches[log.partition]
    watch.open, seen = Unread(watch.open), watch.open
    assert not leases.due(log)
    bench.clock.pass_time(29)
    assert leases.due(log)
    watch.open = seen
    assert leases.expire(log, subject) == 2
    assert not leases.due(log)
    bench.clock.pass_time(30)
    assert leases.due(log)
    assert bench.settle(held[2]) == "settled"
    assert leases.expire(log, subject) == 0
    assert not leases.due(log)


def queue_of(bench: Bench) -> PullLog:
    subject = bench.cell.registry.subject("orders")
    _, queue = pull_logs(bench.cell.context, subject, bench.cell.registry.group(subject, "billing"))
    return queue


def test_a_checkpoint_does_not_fall_when_its_sweeper_was_paused_for_minutes() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    for body in "abc":
        bench.send(body)
    pulls = [bench.pull(1)[0] for _ in "abc"]
    bench.settle(pulls[0])

    class Paused(CallByCall):
        """Once it knows the lowest open row, the sweeper pauses; the rest is settled and swept meanwhile."""

        armed = False

        def get(self, key: Key, *, consistent: bool = True) -> Record | None:
            if key.partition == "checkpoint" and self.armed:
                self.armed = False
                for pull in pulls[1:]:
                    bench.settle(pull)
                bench.cell.sweep()
                bench.clock.pass_time(120)
            return super().get(key, consistent=consistent)

    store = Paused(bench.store)
    paused = Bench(store, bench.blobs, bench.clock, settings=bench.settings)
    assert paused.cell.leases.in_flight(queue_of(paused)) == 2
    store.armed = True
    paused.cell.leases.checkpoint(queue_of(paused))
    assert len(bench.store.scan(Table.META, "checkpoint", limit=9)) == 1
    assert queue_of(bench).beginning().row_no == 3
