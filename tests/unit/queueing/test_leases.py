"""Leases are looked at only when one may be over."""

from typing import Any

from hourwheel.queueing.pull_log import pull_logs
from tests.support import Bench


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
