"""Reads where a queue begins and ends, how fast it grows, and about how large it is."""

from collections.abc import Mapping
from functools import partial

from hourwheel.context import Context
from hourwheel.groups.progress import row_at_time
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.overview import QueueOverview
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.reach.outages import reached

_RATE_MS = 60_000  # long enough that single batches do not show as peaks
_NEWEST_ROWS = 20  # tell the size of a message; in a quiet queue also the rate
_MOST_QUEUES = 16  # a search for the row of a minute ago takes about 20 reads


def queue_numbers(context: Context, subject: Subject, queue: int, totals: Mapping[str, Counter]) -> QueueOverview:
    """Returns the numbers of a queue, whose logs have these totals. Up to four reads, and about 20 more where more than
    20 rows were stored within the last minute."""
    parts = [log for _, log in subject.parts(queue)]
    if any(log not in totals for log in parts):
        return QueueOverview(queue=queue, start=None, end=None, messages=None, produced_per_second=None, bytes=None)
    end = totals[parts[-1]].numbers
    unknown = QueueOverview(queue=queue, start=None, end=end, messages=None, produced_per_second=None, bytes=None)
    return reached(partial(_reached_numbers, context, subject, queue, parts, end), unknown)


def _reached_numbers(context: Context, subject: Subject, queue: int, parts: list[str], end: int) -> QueueOverview:
    first, newest = context.log(parts[0]).first(), context.log(parts[-1]).newest(_NEWEST_ROWS)
    start = end if first is None else max(0, first[1].first_seq)
    rate = None if subject.queues > _MOST_QUEUES else _rate(context, context.log(parts[-1]), newest, end)
    messages = subject.route(queue).messages(start, end)
    sample = sum(row.count for _, row in newest)
    mean_bytes = sum(row.raw_bytes for _, row in newest) / sample if sample else 0
    return QueueOverview(
        queue=queue,
        start=start,
        end=end,
        messages=messages,
        produced_per_second=rate,
        bytes=round(mean_bytes * messages),
    )


def _rate(context: Context, log: Log, newest: list[tuple[int, Row]], end: int) -> float:
    """Returns the mean number of messages per second of the last minute."""
    since_ms = context.clock.now_ms() - _RATE_MS
    if not newest:
        return 0.0
    if newest[-1][1].at_ms < since_ms or newest[-1][0] == 0:
        messages = sum(row.count for _, row in newest if row.at_ms >= since_ms)
    else:
        _, row = row_at_time(log, since_ms)
        messages = 0 if row is None else max(0, end - row.first_seq)
    return round(messages * 1_000 / _RATE_MS, 3)
