"""Plants bugs that show only beyond a page: the real code with the rest of a loop left out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any
from unittest.mock import patch

from hourwheel.context import Context
from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.delay.outgoing_batches import OutgoingBatches
from hourwheel.groups.broadcast import BroadcastDeadLetters
from hourwheel.logs.log import Log
from hourwheel.model.pages import DeadPage
from hourwheel.ports.storage import Counter
from hourwheel.pull_log import totals
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pulling import source_logs
from hourwheel.settling import leases
from hourwheel.settling.leases import Leases
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import delayed
from tests.simulation.plan import Plan

PAGED: list[Bug] = []
planted = registrar(PAGED)


def _many_pulls(plan: Plan) -> Plan:
    """Sharpens a plan: leases end while many pull rows behind them are unknown to a process."""
    return replace(plan, consumers=3, producers=3, queues=1, groups=("a",), calls=500, operators=0, moves=())


@planted(sharpen=_many_pulls)
def a_process_that_is_a_page_of_pull_rows_behind_reads_no_further() -> Iterator[None]:
    def scan(log: PullLog, watch: Any, pages: int | None) -> bool:
        if watch.scanned is not None and watch.scanned.row_no >= leases._PAGE:
            return True
        return real(log, watch, 1)

    real = Leases._scan
    with patch.object(Leases, "_scan", staticmethod(scan)):
        yield


def _two_queues(plan: Plan) -> Plan:
    return replace(plan, queues=2, groups=("a", "b"), consumers=2, operators=0, moves=())


@planted(sharpen=_two_queues)
def the_counters_of_the_second_request_are_forgotten() -> Iterator[None]:
    def read_totals(context: Context, names: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        first = context.store_of(names[0]).counters(names[: totals.GET_MANY], consistent=consistent)
        return {name: Counter(0, 0) for name in names} | first

    with patch.object(source_logs, "read_totals", read_totals), patch.object(totals, "read_totals", read_totals):
        yield


@planted(sharpen=lambda plan: replace(plan, max_attempts=1, groups=("a",), operators=0, moves=()))
def dead_letters_end_with_their_first_page() -> Iterator[None]:
    def rows(self: DeadLetters, start: int, **how: Any) -> Any:
        return islice(real(self, start, **how), (DeadLetters._rows.__kwdefaults__ or {"page": 2}).get("page", 2) + 1)

    real = DeadLetters._rows
    rows.__kwdefaults__ = dict(real.__kwdefaults__ or {})
    with patch.object(DeadLetters, "_rows", rows):
        yield


def _dead_writers(plan: Plan) -> Plan:
    return replace(plan, sweepers=2, operators=0, moves=(), faults=replace(plan.faults, crash=0.08))


@planted(sharpen=_dead_writers)
def a_long_hole_ends_with_what_is_filled_at_once() -> Iterator[None]:
    def fill_end(self: Log, end: int, expires_ms: int) -> bool:
        real(self, end, expires_ms)
        return True

    real = Log.fill_end
    with patch.object(Log, "fill_end", fill_end):
        yield


def _broadcasting(plan: Plan) -> Plan:
    plan = replace(plan, max_attempts=1, groups=("a", "b"), ordered=False, couriers=0)
    return replace(plan, broadcast_seconds=3_600, sweepers=1, operators=0, moves=())


@planted(sharpen=_broadcasting)
def dead_letters_end_with_the_consumer_whose_letters_fill_a_page() -> Iterator[None]:
    def page(self: BroadcastDeadLetters, *, limit: int, **how: Any) -> DeadPage:
        found = real(self, limit=limit, **how)
        full = len(found.messages) == limit
        return DeadPage(found.messages, None) if full and found.next == found.messages[-1].dead_id else found

    real = BroadcastDeadLetters.page
    with patch.object(BroadcastDeadLetters, "page", page):
        yield


def _full_steps(plan: Plan) -> Plan:
    return replace(delayed(plan, Random(plan.seed)), producers=3, operators=0, moves=(), queues=2)


@planted(sharpen=_full_steps)
def a_full_step_of_a_wheel_leaves_out_the_rest() -> Iterator[None]:
    def of(self: OutgoingBatches, slices: Any, *limits: int) -> Any:
        batches, rest = real(self, slices, *limits)
        return batches, [[] for _ in rest]

    real = OutgoingBatches.of
    with patch.object(OutgoingBatches, "of", of):
        yield
