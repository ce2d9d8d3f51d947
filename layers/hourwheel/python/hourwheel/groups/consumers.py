"""Lists the consumers of a group that pulled lately or hold leases.

The pull rows tell both, so a pull writes nothing for this list. A process adds the pulls that it has seen itself, also
those that found nothing. On AWS the function that lists consumers has served no pull. So consumers that wait in vain
are not listed there, except in broadcast groups. A heartbeat of each consumer would be 43,200 writes a month.

A leave is a settlement of each open pull row of the consumer: a conditional update as any other, so that it and a
settlement of the consumer cannot both take effect.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from hourwheel.model.subjects import Subject
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import OPEN, PullRow
from hourwheel.reach.outages import Outages
from hourwheel.registry.removed_names import RemovedNames, drop_keys
from hourwheel.settling.leases import Leases
from hourwheel.settling.settle import Settler

_RECENT_MS = 600_000
"""A pull without messages is remembered this long, in the process that served it."""

_MOST_SEEN = 10_000
"""A process remembers the last pulls of at most this many consumers."""

_RECENT_ROWS = 200
"""The pull rows of each log that tell who pulled lately."""

_LEFT = blake2b(b"leave", digest_size=8).digest()
"""The mark of the settlement that a leave writes."""


@dataclass(frozen=True, kw_only=True)
class ConsumerState:
    """A consumer of a group. ``pulled_ms`` is the time of its last pull, as far as it is known; ``since_ms`` that of
    the first one among the latest pulls. It holds ``in_flight`` messages in ``leases`` pulls, the first of which ends
    at ``lease_until_ms`` (0: none)."""

    consumer: str
    since_ms: int
    pulled_ms: int
    in_flight: int = 0
    leases: int = 0
    lease_until_ms: int = 0

    def pulled_at(self, at_ms: int) -> "ConsumerState":
        return replace(self, since_ms=min(self.since_ms, at_ms), pulled_ms=max(self.pulled_ms, at_ms))

    def with_lease(self, row: PullRow) -> "ConsumerState":
        first = min(self.lease_until_ms or row.lease_until_ms, row.lease_until_ms)
        in_flight = self.in_flight + len(row.unsettled())
        return replace(self, in_flight=in_flight, leases=self.leases + 1, lease_until_ms=first)


class ConsumerStates(NamedTuple):
    """The consumers of a group by name, and the cells that are out of reach: they may have more."""

    consumers: list[ConsumerState]
    out_of_reach: list[str]


class LeaveResult(NamedTuple):
    """How many messages of a consumer that left were released, and the cells that are out of reach: what it holds there
    is handed out again when its leases end."""

    messages: int
    out_of_reach: list[str]


@dataclass
class SeenPulls:
    """The last pulls that this process has served, by group and consumer. A hint: nothing is stored. Thread-safe."""

    _pulls: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _latest: dict[tuple[str, str], int] = field(default_factory=dict)
    """The last pull of each group."""

    def record(self, subject: str, group: str, consumer: str, now_ms: int) -> None:
        # Taken out first: the dictionary then has the order of the pulls, and the oldest one is the first.
        self._pulls.pop((subject, group, consumer), None)
        self._pulls[subject, group, consumer] = now_ms
        self._latest.pop((subject, group), None)
        self._latest[subject, group] = now_ms
        while len(self._latest) > _MOST_SEEN:
            self._latest.pop(next(iter(self._latest)), None)
        while len(self._pulls) > _MOST_SEEN:
            self._pulls.pop(next(iter(self._pulls)), None)

    def forget(self, subject: str, group: str, consumer: str) -> None:
        self._pulls.pop((subject, group, consumer), None)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the consumers of deleted groups: a new group of that name has not seen them."""
        # A copy: other threads record pulls meanwhile.
        drop_keys(self._pulls, [pull for pull in list(self._pulls) if deleted.has_group(*pull[:2])])
        drop_keys(self._latest, [group for group in list(self._latest) if deleted.has_group(*group)])

    def latest_ms(self, subject: str, group: str) -> int:
        """Returns the time of the last pull of the group that this process remembers; 0 if there is none."""
        return self._latest.get((subject, group), 0)

    def consumers(self, now_ms: int) -> Counter[tuple[str, str]]:
        """Returns the number of the consumers of each group that pulled lately."""
        recent = (pull for pull, at_ms in list(self._pulls.items()) if abs(now_ms - at_ms) < _RECENT_MS)
        return Counter((subject, group) for subject, group, _ in recent)

    def of(self, subject: str, group: str, now_ms: int) -> dict[str, int]:
        """Returns the times of the last pulls of the group's consumers."""
        return {
            consumer: at_ms
            for (a_subject, a_group, consumer), at_ms in list(self._pulls.items())
            if (a_subject, a_group) == (subject, group) and abs(now_ms - at_ms) < _RECENT_MS
        }


def consumer_states(
    logs: Iterable[PullLog], leases: Leases, seen: dict[str, int], outages: Outages
) -> list[ConsumerState]:
    """Returns the consumers that pulled lately or hold leases, by name. Adds cells that are out of reach to
    ``outages``, and leaves out their logs."""
    states: dict[str, ConsumerState] = {}

    def pulled(consumer: str, at_ms: int) -> ConsumerState:
        state = states.get(consumer, ConsumerState(consumer=consumer, since_ms=at_ms, pulled_ms=at_ms))
        states[consumer] = state.pulled_at(at_ms)
        return states[consumer]

    for consumer, at_ms in seen.items():
        pulled(consumer, at_ms)
    for log in logs:
        with outages.noted(log.source.name):
            latest, open_rows = _rows_of(log, leases)
            for row in [*latest, *open_rows]:
                if row.consumer:
                    pulled(row.consumer, row.claimed_ms)
            for row in open_rows:
                states[row.consumer] = states[row.consumer].with_lease(row)
    return [state for _, state in sorted(states.items())]


def _rows_of(log: PullLog, leases: Leases) -> tuple[list[PullRow], list[PullRow]]:
    """Returns the latest pull rows of a log, and the open ones."""
    open_rows = [row for _, row in leases.open_rows(log) if row.state == OPEN]
    return list(log.latest(_RECENT_ROWS)), open_rows


def end_leases(subject: Subject, logs: Iterable[PullLog], leases: Leases, consumer: str, outages: Outages) -> int:
    """Ends all leases of a consumer: releases the messages that it has not settled, with no attempt counted. Returns
    their number. Settlements that the consumer sends later are stale. Adds cells that are out of reach to ``outages``:
    the leases there end by themselves."""
    released = 0
    for log in logs:
        with outages.noted(log.source.name):
            for row_no, _ in leases.open_rows(log):
                released += _release(Settler(log, subject), row_no, consumer)
    return released


def _release(settler: Settler, row_no: int, consumer: str) -> int:
    """Releases the messages of an open row if it is the consumer's, and returns their number."""
    # Read again: the open rows may come from a cache, and a settlement may have come since.
    current = settler.log.record(row_no).load()
    if current is None or current.value.consumer != consumer or current.value.state != OPEN:
        return 0
    rest = frozenset(current.value.unsettled()) | current.value.kept
    settled = settler.apply(row_no, current, ParsedSettlement(named=rest, released=rest, mark=_LEFT))
    return len(rest) if settled.status == "settled" else 0
