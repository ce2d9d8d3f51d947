"""Plants bugs of dozing groups: the real code with one clause of the protocol left out. Each is for runs of one kind
of ``dozing.drawn``."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from random import Random
from unittest.mock import patch

from msgspec.structs import replace

from hourwheel.context import Context
from hourwheel.dozing import dozing, rests
from hourwheel.dozing.dozing import DozingWakeups
from hourwheel.dozing.rests import SAFETY_SECONDS, Dozes, LookState, Rest
from hourwheel.model.subjects import DozingGroup
from hourwheel.model.wakeup_names import queue_name
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.totals import read_totals
from hourwheel.pulling import source_logs
from hourwheel.sweep import looks
from tests.simulation.dozeplans import DozePlan, with_crowd
from tests.simulation.faults import Faults
from tests.simulation.wakeups import SimulatedQueues


@dataclass(frozen=True)
class DozeBug:
    name: str
    plant: Callable[[], AbstractContextManager[None]]
    fits: Callable[[DozePlan], bool]
    change: Callable[[DozePlan], DozePlan]
    """Makes the case in which the bug shows more frequent than it is in the plans."""


DOZING: list[DozeBug] = []


def planted(
    fits: Callable[[DozePlan], bool], change: Callable[[DozePlan], DozePlan] = lambda doze: doze
) -> Callable[[Callable[[], Iterator[None]]], None]:
    def register(bug: Callable[[], Iterator[None]]) -> None:
        DOZING.append(DozeBug(bug.__name__, contextmanager(bug), fits, change))

    return register


def faultless(doze: DozePlan) -> bool:
    return doze.faultless


def refusing(doze: DozePlan) -> bool:
    return bool(doze.refused)


def rough(doze: DozePlan) -> bool:
    return doze.loses


def busy(doze: DozePlan) -> bool:
    return doze.faultless and doze.busy_share > 0.1


def old_copies(doze: DozePlan, stale: float = 0.0) -> DozePlan:
    """Changes a plan: consumers begin to wait while producers have old copies of the subject."""
    plan = changed(doze.plan, registry_seconds=8.0, faults=Faults(stale=stale), groups=("a", "b", "c", "d"))
    plan = changed(plan, latency_ms=2)
    often = changed(doze, late_seconds=20, rest_seconds=(1.0, 30.0), slow=0.6, back=0.5)
    return changed(often, plan=plan, producers=2, sleepers=2, stops=0.0)


def unsettled(doze: DozePlan) -> DozePlan:
    """Changes a plan as ``old_copies`` does, and makes most reads outdated."""
    return old_copies(doze, stale=0.97)


def together(doze: DozePlan) -> DozePlan:
    """Changes a plan: messages follow one another within the time in which a process sends one wake-up."""
    plan = changed(doze.plan, faults=Faults(), groups=("a",), latency_ms=2, broadcast_seconds=0)
    return changed(doze, plan=plan, bursts=0.5, rest_seconds=(5.0, 30.0), producers=1, stops=0.0, messages=15)


def crowded(doze: DozePlan) -> DozePlan:
    """Changes a plan: consumers that take one message after the other stop with messages that are kept for them."""
    crowd = with_crowd(doze, Random(doze.plan.seed))
    plan = changed(crowd.plan, faults=Faults(), groups=("a",))
    return changed(crowd, plan=plan, sleepers=3, stops=0.04, messages=100, bursts=0.97, rest_seconds=(20.0, 60.0))


def stopping(doze: DozePlan) -> bool:
    return doze.faultless and doze.stops > 0.1 and doze.sleepers > 1


@planted(faultless, old_copies)
def a_consumer_waits_while_producers_have_copies_that_say_awake() -> Iterator[None]:
    with patch.object(Dozes, "_expiring_ms", 0):
        yield


@planted(refusing)
def a_wakeup_that_fails_fails_the_sender() -> Iterator[None]:
    def announce(self: DozingWakeups, subject: str, group: str | None = None) -> None:
        self._wake(subject, group)

    with patch.object(DozingWakeups, "announce", announce):
        yield


@planted(busy)
def a_consumer_waits_under_the_mark_of_a_busy_group() -> Iterator[None]:
    with patch.object(DozingGroup, "counts", lambda self, after_ms, now_ms: after_ms < self.since_ms <= now_ms):
        yield


@planted(faultless, unsettled)
def nobody_looks_again_before_the_group_dozes() -> Iterator[None]:
    with patch.object(Dozes, "_waits", lambda self, state: False):
        yield


@planted(faultless, unsettled)
def the_look_before_a_group_dozes_reads_old_counters() -> Iterator[None]:
    def outdated(context: Context, names: Iterable[str], *, consistent: bool) -> dict[str, Counter]:
        return read_totals(context, names)

    with patch.object(rests, "read_totals", outdated), patch.object(source_logs, "read_totals", outdated):
        yield


@planted(faultless, unsettled)
def the_only_look_before_a_group_dozes_reads_old_counters() -> Iterator[None]:
    def outdated(context: Context, names: Iterable[str], *, consistent: bool) -> dict[str, Counter]:
        return read_totals(context, names)

    with patch.object(source_logs, "read_totals", outdated):
        yield


@planted(faultless, unsettled)
def the_look_before_a_group_dozes_leaves_out_its_retries() -> Iterator[None]:
    real = PullLog.has_message
    with patch.object(PullLog, "has_message", lambda self: self.queue is not None and real(self)):
        yield


@planted(faultless, together)
def a_woken_consumer_waits_again_without_another_look() -> Iterator[None]:
    def waits(self: Dozes, state: LookState) -> Rest:
        if self.request.wakeup != "woken":
            return Rest()
        return Rest(queue=replace(self.queues.open(queue_name(state.group), fresh=False), wait_seconds=SAFETY_SECONDS))

    with patch.object(Dozes, "busy", waits):
        yield


@planted(stopping)
def a_consumer_that_stops_keeps_its_wakeup() -> Iterator[None]:
    with patch.object(SimulatedQueues, "give_back", lambda self, name: None):
        yield


@planted(rough)
def the_sweeper_lets_dozing_groups_sleep_beside_their_messages() -> Iterator[None]:
    with patch.object(looks, "groups_to_wake", lambda subject, groups, lags, now_ms: []):
        yield


@planted(faultless)
def only_the_first_group_of_a_subject_is_woken() -> Iterator[None]:
    def due(groups: tuple[DozingGroup, ...], prefix: str, now_ms: int) -> list[DozingGroup]:
        return real(groups[:1], prefix, now_ms)

    real = dozing.due_wakeups
    with patch.object(dozing, "due_wakeups", due):
        yield


@planted(faultless, crowded)
def a_consumer_waits_at_its_queue_beside_messages_that_are_kept() -> Iterator[None]:
    with patch.object(Dozes, "_keeps", lambda self, state: False):
        yield
