"""Where a group stands, and how to move it: lag and seek."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hourwheel.errors import Rejected
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model import BATCH_MESSAGES, Lag, QueueLag
from hourwheel.ports import Counter
from hourwheel.queueing.dead import DeadLetters
from hourwheel.queueing.leases import Leases
from hourwheel.queueing.pulllog import PullLog
from hourwheel.queueing.records import Position, Tail
from hourwheel.queueing.skipped import messages_between
from hourwheel.times import rfc3339


@dataclass(frozen=True)
class LogLag:
    """What waits in one source log, since when (ms), the offset of the next message and that of the log's end."""

    waiting: int
    oldest_ms: int | None
    offset: int
    end: int


def lag_of(logs: list[PullLog], leases: Leases, dead: DeadLetters) -> Lag:
    """How far a group is behind. ``logs``: its retry log's, then its queues'."""
    log_lags = [lag_of_log(log, log.tail(), log.source.totals()) for log in logs]
    in_flight = [leases.in_flight(log) for log in logs]
    queues = [
        QueueLag(log.queue, log_lag.waiting, flight, log_lag.offset, log_lag.end)
        for log, log_lag, flight in zip(logs, log_lags, in_flight, strict=True)
        if log.queue is not None
    ]
    oldest = min((log_lag.oldest_ms for log_lag in log_lags if log_lag.oldest_ms is not None), default=None)
    return Lag(
        waiting=sum(queue.waiting for queue in queues),
        in_flight=sum(in_flight),
        retrying=log_lags[0].waiting,
        dead=dead.count(),
        oldest_at=None if oldest is None else rfc3339(oldest),
        queues=queues,
    )


def lag_of_log(log: PullLog, tail: Tail, totals: Counter) -> LogLag:
    """Where the group stands that claims next at ``tail``, on a log with these totals. No read where nothing waits."""
    now_ms = log.context.clock.now_ms()
    end, following, offset = totals.numbers, tail.position.row, tail.number
    if following >= totals.rows:
        return LogLag(0, None, end, end)
    for number, row in log.unread(tail.position, now_ms, page=1, consistent=True):
        skip = tail.position.index if number == tail.position.row else 0
        if not row.filler and row.expires_ms > now_ms:
            offset = row.number + skip
            return LogLag(_waiting(log, totals, number, offset), row.at_ms, offset, max(end, offset))
        following = number + 1
        offset = offset if row.filler else row.number + row.count
    # Below the trim mark all that waited has expired.
    if max(following, log.source.trimmed()) >= totals.rows:
        return LogLag(0, None, end, end)
    # A row is on its way or its writer dead: nobody knows yet what waits there and behind it.
    return LogLag(_waiting(log, totals, following, offset), None, offset, end)


def _waiting(log: PullLog, totals: Counter, row: int, offset: int) -> int:
    """The messages from the offset on, which is in that row: never too few."""
    waiting, most = max(0, totals.numbers - offset), (totals.rows - row) * BATCH_MESSAGES
    if waiting <= most:
        return waiting
    return min(most, messages_between(log.context, log.source.name, offset, totals.numbers))


def seek_start(log: PullLog) -> int:
    """Goes back to the earliest message that is retained; its offset."""
    first = log.source.first()
    offset = log.source.totals().numbers if first is None else max(first[1].number, 0)
    # Not to that row itself: a row below it may be on its way.
    return _seek(log, Position(log.source.trimmed()), offset)


def seek_end(log: PullLog) -> int:
    """Skips all that was accepted so far; the offset of the next message."""
    totals = log.source.totals()
    return _seek(log, Position(totals.rows), totals.numbers)


def seek_time(log: PullLog, at_ms: int) -> int:
    """Goes to the first message accepted at that time or later; its offset."""
    totals = log.source.totals()
    number, row = _search(log.source, lambda row: row.at_ms >= at_ms)
    return _seek(log, Position(number), row.number if row else totals.numbers)


def seek_offset(log: PullLog, offset: int) -> int:
    """Goes to that offset, or to the next one that exists."""
    totals = log.source.totals()
    if offset > totals.numbers:
        raise Rejected("field-invalid", f"offset {offset} is beyond the queue's end {totals.numbers}", field="offset")
    number, row = _search(log.source, lambda row: row.number + row.count > offset)
    if row is None:
        return _seek(log, Position(number), totals.numbers)
    if row.number + row.count <= offset:
        return _seek(log, Position(number + 1), offset)  # it came in after the search had passed it
    return _seek(log, Position(number, max(0, offset - row.number)), max(offset, row.number))


def _seek(log: PullLog, position: Position, offset: int) -> int:
    log.seek(position, offset)
    return offset


def _search(log: Log, reached: Callable[[Row], bool]) -> tuple[int, Row | None]:
    """The first row with messages for which ``reached`` holds, given that it holds for all behind it.

    Where rows are still open it stops before them: they and what follows are not passed over."""
    low, high = log.trimmed(), log.totals().rows
    while low < high:
        middle = (low + high) // 2
        found = next(_batches(log, middle, high), None)
        if found is None or reached(found[1]):
            high = middle
        else:
            low = found[0] + 1
    return next(_batches(log, low, log.totals().rows), (low, None))


def _batches(log: Log, start: int, end: int) -> Iterator[tuple[int, Row]]:
    """The rows with messages from ``start`` up to ``end``."""
    while start < end:
        rows = log.read(start, 4, consistent=True)
        if not rows:
            return
        for number, row in rows:
            if number < end and not row.filler:
                yield number, row
        start = rows[-1][0] + 1
