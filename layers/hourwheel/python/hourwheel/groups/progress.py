"""Measures how far a group is behind, and moves its position."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.errors import Rejected
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.lag import Lag, QueueLag
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, Tail
from hourwheel.pull_log.skipped import messages_between
from hourwheel.reach.outages import Outages
from hourwheel.settling.lease_watch import NONE_KEPT, KeptMessages
from hourwheel.settling.leases import Leases
from hourwheel.times import rfc3339

_NAMED = 100  # an answer names at most this many keys: each costs a read


@dataclass(frozen=True)
class LogLag:
    """The lag in one source log: the number of waiting messages, the time of the oldest one (Unix milliseconds), the
    offset of the next message and that of the log's end. Of the waiting messages, ``kept`` are kept for pulls of their
    consumers."""

    waiting: int
    oldest_ms: int | None
    offset: int
    end: int
    kept: int = 0


def lag_of(logs: list[PullLog], leases: Leases, dead: DeadLetters, outages: Outages) -> Lag:
    """Returns how far a group is behind. ``logs`` are its pull logs: that of the retry log, then those of the queues.
    A log that cannot be reached is left out, and noted in ``outages``. Names the first held keys."""
    lag = _lag_of(logs, leases, dead, outages)
    for log in logs:
        with outages.noted(log.source.name):
            log.add_parked(lag, named=_NAMED)
    return lag


def _lag_of(logs: list[PullLog], leases: Leases, dead: DeadLetters, outages: Outages) -> Lag:
    lags: dict[int | None, list[tuple[LogLag, int]]] = {}
    for log in logs:
        with outages.noted(log.source.name):
            leased = leases.leased(log)
            lag = lag_of_log(log, log.tail(), log.source.totals(), leased.kept)
            lags.setdefault(log.queue, []).append((lag, leased.in_flight))
    return lag_of_parts(lags, dead.count())


def lag_of_parts(parts: Mapping[int | None, list[tuple[LogLag, int]]], dead: int) -> Lag:
    """Returns the lag of a group from the lags and the leased messages in the parts of its queues and in its retry log,
    and from the number of its dead letters."""
    lags = [lag for of_queue in parts.values() for lag in of_queue]
    queues = [lag_of_queue(queue, of_queue) for queue, of_queue in parts.items() if queue is not None]
    return Lag(
        waiting=sum(queue.waiting for queue in queues),
        in_flight=sum(in_flight for _, in_flight in lags),
        retrying=sum(lag.waiting for lag, _ in parts[None]),
        dead=dead,
        oldest_at=_oldest_at(lags),
        queues=queues,
    )


def _oldest_at(lags: Sequence[tuple[LogLag, int]]) -> str | None:
    oldest_ms = min((lag.oldest_ms for lag, _ in lags if lag.oldest_ms is not None), default=None)
    return None if oldest_ms is None else rfc3339(oldest_ms)


def lag_of_queue(queue: int, parts: list[tuple[LogLag, int]]) -> QueueLag:
    """Returns the lag in a queue from those in its parts, oldest first."""
    lags = [lag for lag, _ in parts]
    following = next((lag for lag in lags if lag.waiting), lags[-1])
    waiting, in_flight = sum(lag.waiting for lag in lags), sum(flight for _, flight in parts)
    return QueueLag(queue, waiting, in_flight, following.offset, lags[-1].end)


def lag_of_log(log: PullLog, tail: Tail, totals: Counter, kept: KeptMessages = NONE_KEPT) -> LogLag:
    """Returns the lag of a group whose next claim is at ``tail``, on a log with these totals, and of the messages that
    its rows keep. Reads nothing where no message waits."""
    lag = _lag_behind(log, tail, totals)
    if not kept.messages:
        return lag
    first = log.source.get(kept.row_no)
    oldest_ms = lag.oldest_ms if first is None or first.filler else first.at_ms
    return replace(lag, waiting=lag.waiting + kept.messages, oldest_ms=oldest_ms, kept=kept.messages)


def _lag_behind(log: PullLog, tail: Tail, totals: Counter) -> LogLag:
    now_ms = log.context.clock.now_ms()
    end, following, offset = totals.numbers, tail.position.row_no, tail.seq
    if following >= totals.rows:
        return LogLag(0, None, end, end)
    for row_no, row in log.unread(tail.position, now_ms, page=1, consistent=True):
        skip = tail.position.index if row_no == tail.position.row_no else 0
        if not row.filler and row.expires_ms > now_ms:
            offset = row.first_seq + skip
            return LogLag(_waiting(log, totals, row_no, offset), row.at_ms, offset, max(end, offset))
        following = row_no + 1
        offset = offset if row.filler else row.first_seq + row.count
    # Below the trim mark every message has expired.
    if max(following, log.source.trimmed()) >= totals.rows:
        return LogLag(0, None, end, end)
    # The row is not stored yet, or its writer is dead: its messages, and those behind it, cannot be counted yet.
    return LogLag(_waiting(log, totals, following, offset), None, offset, end)


def _waiting(log: PullLog, totals: Counter, row_no: int, offset: int) -> int:
    """Returns the number of messages from ``offset``, in row ``row_no``, to the end; too many rather than too few."""
    waiting, most = max(0, totals.numbers - offset), (totals.rows - row_no) * BATCH_MESSAGES
    if waiting <= most:
        return waiting
    return min(most, messages_between(log.context, log.source.name, offset, totals.numbers))


class SeekTarget(NamedTuple):
    """Where a seek puts the start of the next claim in one log, and the offset of the message there."""

    position: Position
    offset: int


Aim: TypeAlias = Callable[[PullLog], SeekTarget]
"""Decides where a seek goes in one log. Writes nothing."""

SeekStep: TypeAlias = Callable[[PullLog, SeekTarget], None]
"""What a seek does with the target in one log: ``move`` carries it out."""


def move(log: PullLog, target: SeekTarget) -> None:
    """Makes the target the start of the group's next claim."""
    log.seek(target.position, target.offset)


def shift(log: PullLog, target: SeekTarget) -> int:
    """Returns how many more messages would wait in the log after a seek to the target: those that are served again, or
    below 0 those that are passed over. Reads what ``lag`` reads of this log, twice, and writes nothing."""
    tail, totals = log.tail(), log.source.totals()
    after = tail._replace(position=target.position, seq=target.offset)
    return lag_of_log(log, after, totals).waiting - lag_of_log(log, tail, totals).waiting


def seek_queue(parts: list[PullLog], aim: Aim, step: SeekStep = move) -> int:
    """Takes the step of a seek in all parts of a queue, oldest first, and returns the offset of the next message."""
    reached = []
    for log in parts:
        target = aim(log)
        step(log, target)
        reached.append((target.offset, log.source.totals().numbers))
    return next((offset for offset, end in reached if offset < end), reached[-1][0])


def seek_queue_offset(parts: list[PullLog], offset: int, step: SeekStep = move) -> int:
    """Seeks ``offset``, or the next offset that exists, in the part that holds it: the end of the parts before, the
    start of those after. Returns the offset. Raises ``Rejected`` for an offset beyond the end of the queue; no step is
    taken then."""
    _check_offset(offset, parts[-1].source.totals())

    def aim(log: PullLog) -> SeekTarget:
        if log.mapping.end is not None and log.mapping.end <= offset:
            return to_end(log)
        return to_start(log) if log.mapping.start > offset else to_offset(log, offset)

    return seek_queue(parts, aim, step)


def _check_offset(offset: int, totals: Counter) -> None:
    if offset > totals.numbers:
        raise Rejected(
            "field-invalid",
            f"offset {offset} is beyond the queue's end {totals.numbers}: give a smaller one",
            field="offset",
        )


def to_start(log: PullLog) -> SeekTarget:
    """Returns the earliest message that is retained."""
    first = log.source.first()
    offset = log.source.totals().numbers if first is None else max(first[1].first_seq, 0)
    # To the trim mark and not to that row: a row below it may still be stored.
    return SeekTarget(Position(log.source.trimmed()), offset)


def to_end(log: PullLog) -> SeekTarget:
    """Returns the position behind every message accepted so far."""
    totals = log.source.totals()
    return SeekTarget(Position(totals.rows), totals.numbers)


def to_time(log: PullLog, at_ms: int) -> SeekTarget:
    """Returns the first message accepted at ``at_ms`` or later."""
    totals = log.source.totals()
    row_no, row = row_at_time(log.source, at_ms)
    return SeekTarget(Position(row_no), row.first_seq if row else totals.numbers)


def to_offset(log: PullLog, offset: int) -> SeekTarget:
    """Returns the message at ``offset``, or at the next offset that exists. Raises ``Rejected`` for an offset beyond
    the end of the queue."""
    totals = log.source.totals()
    _check_offset(offset, totals)
    row_no, row = row_at_offset(log.source, offset)
    if row is None:
        return SeekTarget(Position(row_no), totals.numbers)
    if row.first_seq + row.count <= offset:
        return SeekTarget(Position(row_no + 1), offset)  # the row was stored after the search had passed it
    return SeekTarget(Position(row_no, max(0, offset - row.first_seq)), max(offset, row.first_seq))


def row_at_time(log: Log, at_ms: int) -> tuple[int, Row | None]:
    """Returns the first row with messages that was stored at ``at_ms`` or later, and its number; without a row, the
    number of the row that comes next."""
    return _search(log, lambda row: row.at_ms >= at_ms)


def row_at_offset(log: Log, offset: int) -> tuple[int, Row | None]:
    """Returns the first row with a message of this offset or a later one, and its number; without a row, the number of
    the row that comes next."""
    return _search(log, lambda row: row.first_seq + row.count > offset)


def _search(log: Log, reached: Callable[[Row], bool]) -> tuple[int, Row | None]:
    """Returns the first row with messages for which ``reached`` is true, and its number. ``reached`` must be true for
    every row behind that one.

    Stops before a row that is not stored yet, and returns its number without a row: a seek must not pass over it.
    """
    low, high = log.trimmed(), log.totals().rows
    while low < high:
        middle = (low + high) // 2
        batch = next(_batches(log, middle, high), None)
        if batch is None or reached(batch[1]):
            high = middle
        else:
            low = batch[0] + 1
    return next(_batches(log, low, log.totals().rows), (low, None))


def _batches(log: Log, start: int, end: int) -> Iterator[tuple[int, Row]]:
    """Yields the rows with messages from ``start`` up to ``end``."""
    while start < end:
        # Few rows: the search needs the first one with messages alone, and fillers are rare.
        rows = log.read(start, 4, consistent=True)
        if not rows:
            return
        for row_no, row in rows:
            if row_no < end and not row.filler:
                yield row_no, row
        start = rows[-1][0] + 1
