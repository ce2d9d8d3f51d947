"""Counts the delayed messages of an hour by the minute in which they fall due, and finds the first of them."""

from collections import Counter
from itertools import islice

from hourwheel.buckets.buckets import Bucket, buckets
from hourwheel.context import Context
from hourwheel.delay.ownership import DispatchLog
from hourwheel.logs.entries import CancelMarker, readable_entry
from hourwheel.times import MINUTE_MS

_ROWS = 2_000  # of each log of the hour: reading more takes a second


def due_by_minute(
    context: Context, span: tuple[int, int], subject: tuple[str, int] | None
) -> tuple[dict[int, int], bool]:
    """Returns the number of messages of the subject (name and generation; None: of all) that fall due in the span, by
    the start of the minute, and whether all rows were read. Reads 2,000 rows of each log of a bucket in the span; a
    span of an hour has a few buckets."""
    first_ms, end_ms = span
    counts: Counter[int] = Counter()
    complete = True
    for bucket, record in buckets(context, before_ms=end_ms):
        if record.closed_ms or bucket.end_ms <= first_ms:
            continue
        complete = _count(context, bucket, span, subject, counts) and complete
    return dict(sorted(counts.items())), complete


def first_due_ms(context: Context, bucket: Bucket, subject: tuple[str, int] | None) -> int:
    """Returns when the first message of the subject in this bucket is due, in Unix milliseconds. Returns the start of
    the bucket where not every row was read, or where its messages were handed over meanwhile. Reads as
    ``due_by_minute`` does."""
    dues, complete = _waiting(context, bucket, subject)
    return min(dues, default=bucket.start_ms) if complete else bucket.start_ms


def _count(
    context: Context, bucket: Bucket, span: tuple[int, int], subject: tuple[str, int] | None, counts: Counter[int]
) -> bool:
    dues, complete = _waiting(context, bucket, subject)
    for due_ms in dues:
        if span[0] <= due_ms < span[1]:
            counts[due_ms // MINUTE_MS * MINUTE_MS] += 1
    return complete


def _waiting(context: Context, bucket: Bucket, subject: tuple[str, int] | None) -> tuple[list[int], bool]:
    """Returns when the messages of the bucket are due that are neither handed over nor cancelled, and whether all rows
    were read."""
    dispatched = list(islice(DispatchLog(context, bucket).rows(), _ROWS))
    done = {pick for _, row in dispatched for pick in row.picks}
    dues: dict[tuple[int, int], int] = {}
    rows = 0
    for row_no, row in islice(context.log(bucket.log).rows(0), _ROWS):
        rows += 1
        entry = readable_entry(row.meta)
        if isinstance(entry, CancelMarker):
            done.add((entry.row_no, entry.index))
        elif entry is not None and entry.is_for(subject):
            dues |= {(row_no, index): entry.due_ms(index) for index in range(row.count)}
    waiting = [due_ms for pick, due_ms in dues.items() if pick not in done]
    return waiting, max(rows, len(dispatched)) < _ROWS
