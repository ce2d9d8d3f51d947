"""Controls the flow to a group: computes how many more messages the group may lease now by the limits that it sets.

The pull rows tell which messages are leased and when they were claimed, whatever process claimed them. So nothing is
written for a limit. A process reads the rows that are new to it, and a claim that follows takes the very next pull row
or none. So it has counted all claims of its pull log before it. Claims of different logs of a group at the same moment
may miss one another where the store has no transactions, or where the logs are in several cells. Of a log whose cell is
out of reach count the leases that the process has seen. Messages that have expired do not count, however long their
lease lasts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

import msgspec

from hourwheel.logs.rows import sort_of
from hourwheel.model.groups import Group
from hourwheel.ports.storage import GET_MANY, Record, Table
from hourwheel.pull_log.limits import Limit
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import OPEN, PullRow
from hourwheel.reach.outages import reached
from hourwheel.registry.removed_names import RemovedNames, drop_logs

_PAGE = 200  # pull rows have about 150 bytes: 30 KB
_ELSEWHERE_SECONDS = 1.0  # no announcement tells of settlements by other processes: a waiting pull looks this often
_TRUSTED_MS = 3_600_000  # a store keeps settled rows for days: none is removed before it is read
_ROUNDING_MS = 1e-3  # sums of intervals are rounded
_BURST_MS = 1_000.0  # a second's worth of messages may be leased at once
_LONG_MS = 60_000  # the shortest retention: a look whether messages have expired costs the rows that hold them


class Allowance(NamedTuple):
    """The number of ``messages`` that a pull may lease, and the ``limit`` that leaves no more. The claim must be pull
    row ``rows[partition]`` of its log."""

    messages: int
    limit: Limit | None
    rows: dict[str, int]


_UNREAD = -1


class _LogState(msgspec.Struct, frozen=True):
    """A pull log below ``next_row`` (``_UNREAD``: its cell was out of reach so far). ``leased`` holds the number of
    leased messages of each row that was open, and ``ends_ms`` when rows of the source expire whose messages are leased
    for long."""

    next_row: int
    leased: dict[int, int]
    ends_ms: dict[int, int] = {}


class _GroupState(msgspec.Struct, frozen=True):
    """The logs of a group. At the rate of the group, the messages claimed so far take until ``due_ms``."""

    logs: dict[str, _LogState]
    at_ms: int
    due_ms: float = 0.0

    @property
    def leased(self) -> int:
        return sum(sum(log.leased.values()) for log in self.logs.values())


_UNSEEN = _GroupState({}, -_TRUSTED_MS)


@dataclass
class FlowControl:
    """Remembers what this process has read of the groups that have limits. Replaces a state as a whole; losing one
    costs reads. Thread-safe."""

    _states: dict[str, _GroupState] = field(default_factory=dict)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the states of deleted groups."""
        drop_logs(deleted, self._states)

    def allowance(self, logs: Sequence[PullLog], max_messages: int) -> Allowance:
        """Returns how many of the ``max_messages`` the limits of the group leave. ``logs`` are all its pull logs.
        One read for each log, and where ``max_in_flight`` leaves too few, one for each 100 leases."""
        group = logs[0].group
        name = group.retry_log
        now_ms = logs[0].context.clock.now_ms()
        state = self._states.get(name, _UNSEEN)
        if not 0 <= now_ms - state.at_ms < _TRUSTED_MS:
            state = _GroupState({}, now_ms)
        state = _with_new_rows(state, logs, now_ms)
        if group.max_in_flight and state.leased + max_messages > group.max_in_flight:
            state = _without_settled(state, logs)
        self._states[name] = state
        rows = {partition: log.next_row for partition, log in state.logs.items()}
        allowances = [Allowance(max_messages, None, rows)]
        if group.max_in_flight:
            free = max(0, group.max_in_flight - state.leased)
            allowances.append(Allowance(free, Limit("max_in_flight", _ELSEWHERE_SECONDS), rows))
        if group.messages_per_second:
            # Not the time before the rows were read: claims that came meanwhile would seem to be of the future.
            at_rate, wait_seconds = _at_rate(group, state.due_ms, logs[0].context.clock.now_ms())
            allowances.append(Allowance(at_rate, Limit("messages_per_second", wait_seconds), rows))
        return min(allowances, key=lambda allowance: allowance.messages)


def is_current(logs: Sequence[PullLog], rows: dict[str, int]) -> bool:
    """Returns whether no log has another pull row since ``rows`` were counted. Exact inside of a transaction."""
    return all(log.tail().row_no == rows.get(log.partition) for log in logs)


def _with_new_rows(state: _GroupState, logs: Sequence[PullLog], now_ms: int) -> _GroupState:
    claims: list[PullRow] = []
    read: dict[str, _LogState] = {}
    for log in logs:
        before = state.logs.get(log.partition, _LogState(_UNREAD, {}))
        # Of a log out of reach counts what this process has seen.
        after, new = reached(partial(_with_new_rows_of, log, before, now_ms), (before, ()))
        read[log.partition] = after
        claims += new
    return _GroupState(read, now_ms, _due_ms(logs[0].group, state.due_ms, claims))


def _with_new_rows_of(log: PullLog, before: _LogState, now_ms: int) -> tuple[_LogState, Sequence[PullRow]]:
    """Returns the state of a log with the rows that are new in it, and these rows."""
    start = before.next_row
    if start == _UNREAD:
        before = _LogState(log.beginning().row_no, {})
        start = _first_recent(log, before.next_row, now_ms)
    rows = list(log.rows_from(start, _PAGE))
    # The last rows may have expired before earlier ones.
    next_row = max([before.next_row, *(row_no + 1 for row_no, _ in rows)])
    leased = before.leased | {row_no: len(row.unsettled()) for row_no, row in rows if row.state == OPEN}
    return _LogState(next_row, leased, before.ends_ms), [row for _, row in rows]


def _first_recent(log: PullLog, first: int, now_ms: int) -> int:
    """Returns the first pull row that counts for a process which has read none. Claims that were settled at once may
    lie below the checkpoint (``first``), and count for the rate."""
    if not log.group.messages_per_second:
        return first
    recent_ms = now_ms - 2 * _burst_ms(log.group)
    claimed_ms: float = now_ms
    while first and claimed_ms >= recent_ms:
        earlier = log.rows(max(0, first - _PAGE), 1)
        if not earlier or earlier[0][0] >= first:
            break  # removed long after they were settled
        first, claimed_ms = earlier[0][0], earlier[0][1].value.claimed_ms
    return first


def _without_settled(state: _GroupState, logs: Sequence[PullLog]) -> _GroupState:
    """Returns the state after another look at the rows that were open."""
    read: dict[str, _LogState] = {}
    for log in logs:
        seen = state.logs[log.partition]
        # Of a log out of reach nobody can tell which leases are settled.
        read[log.partition] = reached(partial(_still_leased, log, seen, state.at_ms), seen)
    return _GroupState(read, state.at_ms, state.due_ms)


def _still_leased(log: PullLog, seen: _LogState, now_ms: int) -> _LogState:
    rows = _read_rows(log, list(seen.leased))
    leased = {row_no: row.unsettled() for row_no, row in rows.items() if row.state == OPEN}
    long = {no: _positions(rows[no], left) for no, left in leased.items() if rows[no].claimed_ms + _LONG_MS <= now_ms}
    ends_ms = _ends_ms(log, seen.ends_ms, set(chain.from_iterable(long.values())))
    counts = {no: len(left) for no, left in leased.items()}
    counts |= {no: sum(ends_ms[row_no] > now_ms for row_no in positions) for no, positions in long.items()}
    return _LogState(seen.next_row, counts, ends_ms)


def _read_rows(log: PullLog, row_nos: Sequence[int]) -> dict[int, PullRow]:
    store = log.record(0).store
    records: dict[str, Record] = {}
    for page in _pages(row_nos):
        records |= store.get_many(Table.PULL, log.partition, [sort_of(row_no) for row_no in page])
    return {int(sort): log.opened(int(sort), record).value for sort, record in records.items()}


def _positions(row: PullRow, unsettled: Sequence[int]) -> list[int]:
    """Returns the row of the source that holds each of these messages of a pull."""
    positions = row.positions()
    return [positions[index].row_no for index in unsettled]


def _ends_ms(log: PullLog, read_before: dict[int, int], row_nos: set[int]) -> dict[int, int]:
    """Returns when these rows of the source expire (0: they were removed). Reads those that are not known."""
    unknown = sorted(row_nos - read_before.keys())
    read: dict[int, int] = {}
    for page in _pages(unknown):
        rows = log.source.get_many(page, consistent=True)
        read.update((row_no, rows[row_no].expires_ms if row_no in rows else 0) for row_no in page)
    return {row_no: read_before.get(row_no, read.get(row_no, 0)) for row_no in row_nos}


def _pages(row_nos: Sequence[int]) -> Iterator[Sequence[int]]:
    return (row_nos[start : start + GET_MANY] for start in range(0, len(row_nos), GET_MANY))


def _due_ms(group: Group, due_ms: float, claims: Sequence[PullRow]) -> float:
    if not group.messages_per_second:
        return 0.0
    for claim in sorted(claims, key=lambda claim: claim.claimed_ms):
        due_ms = _due_from(group, due_ms, claim.claimed_ms) + claim.size * 1_000 / group.messages_per_second
    return due_ms


def _due_from(group: Group, due_ms: float, now_ms: int) -> float:
    """Returns the time until which the messages before take at the rate of the group; now if that time is past. Returns
    now as well if the time is too far ahead, because the clock was set back: that must not stop the group."""
    return due_ms if now_ms < due_ms <= now_ms + 2 * _burst_ms(group) else float(now_ms)


def _burst_ms(group: Group) -> float:
    return max(_BURST_MS, 1_000 / group.messages_per_second)


def _at_rate(group: Group, due_ms: float, now_ms: int) -> tuple[int, float]:
    """Returns how many messages the rate leaves now, and the seconds until it leaves one (the generic cell rate
    algorithm)."""
    interval_ms = 1_000 / group.messages_per_second
    early_ms = now_ms + _burst_ms(group) - _due_from(group, due_ms, now_ms)
    left = int((early_ms + _ROUNDING_MS) / interval_ms)
    # A millisecond at least: a pull that waits for less would look again at once.
    return max(0, left), max(1.0, interval_ms - early_ms) / 1_000
