"""Decides for the sweeper, from what it has read: maintenance, pushes, rests, trims, reports. Reads and writes nothing.

A subject that has not changed since the last look rests, if the settings allow it, twice as long as before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hourwheel.groups.progress import LogLag
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.parked_counts import ParkedLag
from hourwheel.pull_log.records import Tail
from hourwheel.push.state import target_of
from hourwheel.times import within

REST_MS = 60_000
"""The first rest, and the longest one of a subject that is pushed: only a sweep finds a push whose wake was lost."""

EARLY_MS = 10_000
"""Sweeps come each minute, give or take seconds: a rest may end this much earlier."""

OVERDUE_SECONDS = 5
"""Consumers that were woken have taken their messages by then."""

MAINTENANCE_MS = 12 * 3_600_000
"""A subject without leases gets maintenance this often: rows vanish a day after they expire, and the trim mark must
have passed them by then."""

LINES = 100
"""At most this many groups are logged by one sweep."""


class GroupLag(msgspec.Struct, frozen=True):
    """How far a group is behind. ``oldest_ms`` is the time since which the oldest message waits. ``pullable`` messages
    can be pulled now or soon: the others are kept for a consumer, or in an ordered group wait behind a message of their
    key. ``held_keys`` are held back by a message that failed."""

    subject: str
    group: str
    waiting: int
    in_flight: int
    retrying: int
    oldest_ms: int | None
    pullable: int
    held_keys: int = 0

    @property
    def total(self) -> int:
        """The number of waiting messages, retries included."""
        return self.waiting + self.retrying

    def oldest_seconds(self, now_ms: int) -> float:
        return 0.0 if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1_000)

    def line(self, now_ms: int) -> dict[str, object]:
        """Returns the fields of the group's log line."""
        return {
            "subject": self.subject,
            "group": self.group,
            "waiting": self.waiting,
            "in_flight": self.in_flight,
            "retrying": self.retrying,
            "held_keys": self.held_keys,
            "oldest_seconds": self.oldest_seconds(now_ms),
        }


@dataclass(frozen=True)
class SubjectSnapshot:
    """The state of a subject at one look. ``totals`` are those of its queues and retry logs, ``dead`` those of its dead
    logs. For each pull log in use ``tails`` says where the next claim goes (None: unknown), and ``leased`` how many
    messages are leased."""

    at_ms: int
    subject: Subject
    groups: Sequence[Group]
    totals: Mapping[str, Counter]
    dead: Sequence[Counter]
    tails: Sequence[Tail | None]
    leased: Sequence[int]

    def unchanged(self, earlier: "SubjectSnapshot") -> bool:
        """Returns whether no message, claim, seek or setting changed the subject between the two looks."""
        return self._state == earlier._state

    @property
    def _state(self) -> tuple[object, ...]:
        return self.subject, self.groups, self.totals, self.dead, self.tails


@dataclass(frozen=True)
class LastLook:
    """The last look of this process at a subject; only a hint."""

    snapshot: SubjectSnapshot
    maintained_ms: int
    rest_ms: int = 0


def rests(last: LastLook | None, subject: Subject, groups: Sequence[Group], now_ms: int) -> bool:
    """Returns whether the sweeper may skip the subject in this sweep."""
    if last is None or (last.snapshot.subject, last.snapshot.groups) != (subject, groups):
        return False
    return within(last.snapshot.at_ms, now_ms, last.rest_ms - EARLY_MS)


def needs_maintenance(last: LastLook | None, snapshot: SubjectSnapshot) -> bool:
    """Returns whether checkpoints and trim marks have to be moved: the subject changed, has leases, or had its last
    maintenance long ago."""
    rested = last is not None and last.rest_ms > 0 and snapshot.unchanged(last.snapshot)
    maintained_ms = last.maintained_ms if rested and last is not None else 0
    return any(snapshot.leased) or not within(maintained_ms, snapshot.at_ms, MAINTENANCE_MS)


def groups_to_push(subject: Subject, groups: Sequence[Group], lags: Sequence[GroupLag | None]) -> list[Group]:
    """Returns the groups with a target that have messages to pull, or whose lag is unknown, and that are not
    paused."""
    return [
        group
        for group, lag in zip(groups, lags, strict=True)
        if target_of(subject, group) is not None and (lag is None or lag.pullable > 0)
    ]


def groups_to_wake(
    subject: Subject, groups: Sequence[Group], lags: Sequence[GroupLag | None], now_ms: int
) -> list[int]:
    """Returns the indexes of the groups whose messages have waited longer than consumers that are awake leave them: a
    wake-up was lost, or a consumer took it and ended. Paused groups wait until they are resumed."""
    if subject.paused or not subject.wakes_groups:
        return []
    return [
        number
        for number, (group, lag) in enumerate(zip(groups, lags, strict=True))
        if not group.paused and lag is not None and lag.pullable and lag.oldest_seconds(now_ms) >= OVERDUE_SECONDS
    ]


def is_idle(last: LastLook | None, snapshot: SubjectSnapshot, lags: Sequence[GroupLag | None]) -> bool:
    """Returns whether the subject has not changed since the last look, if there was one, and no message waits or is
    leased."""
    idle = all(lag is not None and not (lag.total or lag.in_flight or lag.held_keys) for lag in lags)
    return idle and (last is None or snapshot.unchanged(last.snapshot))


def next_rest_ms(
    last: LastLook | None, snapshot: SubjectSnapshot, lags: Sequence[GroupLag | None], longest_ms: int
) -> int:
    """Returns how long the subject rests after this look. It is twice as long as before while the subject is idle, and
    0 if the next sweep looks at it."""
    if last is None or not is_idle(last, snapshot, lags):
        return 0
    # Only a sweep finds a push whose wake was lost: such a subject rests for a minute at most.
    pushed = any(group.push is not None for group in snapshot.groups)
    return min(max(2 * last.rest_ms, REST_MS), REST_MS if pushed else longest_ms)


def lag_of_group(
    group: Group,
    retries: Sequence[LogLag],
    queues: Sequence[LogLag],
    leased: Iterable[int],
    parked: Sequence[ParkedLag] = (),
) -> GroupLag:
    """Returns the lag of a group from its lags in the retry log and in the queues, and from what is parked in them."""
    waiting, retrying = sum(lag.waiting for lag in queues), sum(lag.waiting for lag in retries)
    return GroupLag(
        subject=group.subject,
        group=group.name,
        waiting=waiting + sum(lag.counts.waiting for lag in parked),
        in_flight=sum(leased),
        retrying=retrying + sum(lag.counts.due for lag in parked),
        oldest_ms=_oldest_ms([*retries, *queues], parked),
        pullable=waiting + retrying + sum(lag.counts.pullable for lag in parked) - sum(lag.kept for lag in queues),
        held_keys=sum(lag.counts.held for lag in parked),
    )


def _oldest_ms(lags: Sequence[LogLag], parked: Sequence[ParkedLag]) -> int | None:
    times = [*(lag.oldest_ms for lag in lags), *(lag.oldest_ms for lag in parked)]
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


@dataclass(frozen=True)
class LagReport:
    """The groups to log, the largest lag first, and the metrics of a sweep."""

    lines: Sequence[GroupLag]
    waiting: int
    held_keys: int
    oldest_seconds: float


def lag_report(lags: Iterable[GroupLag], now_ms: int) -> LagReport:
    """Returns the report of a sweep on these groups."""
    behind = sorted((lag for lag in lags if lag.total or lag.held_keys), key=lambda lag: lag.total, reverse=True)
    oldest_seconds = max((lag.oldest_seconds(now_ms) for lag in behind), default=0.0)
    waiting, held_keys = sum(lag.total for lag in behind), sum(lag.held_keys for lag in behind)
    return LagReport(behind[:LINES], waiting, held_keys, oldest_seconds)


class LostRow(NamedTuple):
    """The number of a row that has expired, and the number of its messages."""

    row_no: int
    messages: int


def unread_of(expired: Sequence[LostRow], tail: Tail | None) -> int:
    """Returns how many messages of these rows the group had not pulled, whose next claim is at ``tail`` (None: unknown,
    which counts none). Counts messages that the group's filter leaves out, as ``waiting`` does."""
    if tail is None:
        return 0
    first = tail.position
    pulled = first.index if any(row.row_no == first.row_no for row in expired) else 0
    return sum(row.messages for row in expired if row.row_no >= first.row_no) - pulled


def expired_below(rows: Sequence[tuple[int, Row]], start: int, now_ms: int) -> tuple[int, bool]:
    """Returns the number of the first of these rows that has not expired, and True; if all have expired, the number
    behind the last one (``start`` if there are no rows), and False."""
    for row_no, row in rows:
        if row.expires_ms > now_ms:
            return row_no, True
    return (rows[-1][0] + 1 if rows else start), False
