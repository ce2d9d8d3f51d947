"""Records how far the archive is: a watermark for each log, and the head.

    table      meta
    partition  archive                          archive/head
    sort       {kind} {log}                     head
    value      the next row, msgpack            ArchiveHead, msgpack array

The manifests decide what is archived. These records repeat them, so that no process has to read all manifests. The
watermarks of a bucket's logs expire years after the bucket, which has long been removed by then.
"""

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model.log_names import is_schedule
from hourwheel.ports.storage import Key, Record, Table, items_of
from hourwheel.retention.kinds import DISPATCHES
from hourwheel.retention.manifests import Span

HEAD_KEY = Key(Table.META, "archive/head", "head")
_PARTITION = "archive"
_PAGE = 1_000
_BUCKETS_MS = 3 * 366 * 86_400_000  # longer than the longest delay, of two years

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)


class ArchiveHead(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The progress of the archiver. ``number`` is the number of the next manifest; the watermarks contain all manifests
    before it. Every row that was stored before ``complete_ms`` is archived; ``last_manifest_ms`` is the largest
    ``complete_ms`` of any manifest. The archive exists since ``since_ms``. The current pass through all logs began at
    ``pass_ms`` (0: the next call begins a pass), goes on behind the watermark named ``resume``, and has skipped no log
    so far if ``complete``. ``registry`` is the digest of the registry snapshot that was archived last. The last commit
    ended at ``ended_ms``. ``store`` is a random name of the store, which its manifests name; a rebuilt store keeps it.
    ``digest`` is that of the last manifest. The manifests below ``bundled`` are in bundles."""

    number: int = 0
    complete_ms: int = 0
    resume: str = ""
    pass_ms: int = 0
    complete: bool = True
    registry: str = ""
    since_ms: int = 0
    last_manifest_ms: int = 0
    ended_ms: int = 0
    store: str = ""
    digest: str = ""
    bundled: int = 0


def head_record(context: Context) -> CasRecord[ArchiveHead]:
    return CasRecord(context.store, context.ids, HEAD_KEY, ArchiveHead)


def watermark_name(kind: str, log: str) -> str:
    return f"{kind} {log}"


def watermarks(context: Context) -> dict[str, int]:
    """Returns the next row that is not archived, by the name of the watermark. A log without a watermark has none of
    its rows in the archive."""
    items = items_of(context.store, Table.META, _PARTITION, page=_PAGE)
    return {name: _opened(record) for name, record in items}


def advance_watermark(context: Context, span: Span) -> None:
    """Moves the watermark of a log up to the end of the span. Idempotent; a watermark never moves back."""
    key = Key(Table.META, _PARTITION, watermark_name(span.kind, span.log))
    bucket = _bucket_of(span)
    expires_ms = None if bucket is None else max(bucket.end_ms, context.clock.now_ms()) + _BUCKETS_MS
    # The first span of a log has no watermark to read, unless another archiver has stored it: then the put is refused.
    current = context.store.get(key) if span.start else None
    # Several archivers may apply one manifest: the mark only rises, so the order of their writes does not matter.
    while current is None or _opened(current) < span.end:
        record = Record(_encoder.encode(span.end), context.ids.token(), expires_ms)
        refused = context.store.put(key, record, expect=None if current is None else current.token)
        if refused is None:
            return
        current = refused.current


def removable_below(context: Context, kind: str, log: str, below: int) -> int:
    """Returns the row below which the log may be trimmed. ``below`` is the row below which no reader needs the rows.
    In a cell with an archive the result is lower while rows below ``below`` are not archived."""
    if not below or not context.settings.archive:
        return below
    # A watermark that is read too low only keeps rows longer.
    return min(below, watermark(context, kind, log))


def watermark(context: Context, kind: str, log: str) -> int:
    """Returns the next row of the log that is not archived."""
    record = context.store.get(Key(Table.META, _PARTITION, watermark_name(kind, log)))
    return 0 if record is None else _opened(record)


def replace_head(context: Context, current: Versioned[ArchiveHead], value: ArchiveHead) -> Versioned[ArchiveHead]:
    """Changes the head unless another process has changed it; returns the stored head."""
    after = head_record(context).swap(current, value).current
    assert after is not None  # a head is never removed
    return after


def archived_ms(context: Context) -> int:
    """Returns a time (Unix milliseconds) before which every stored row is archived; 0 if there is none. Without an
    archive it is now."""
    if not context.settings.archive:
        return context.clock.now_ms()
    current = head_record(context).load(consistent=False)
    return 0 if current is None else current.value.complete_ms


def behind_seconds(context: Context) -> float:
    """Returns how many seconds the archive is behind: the age of the time before which every stored row is archived (of
    ``since_ms`` while there is none)."""
    head = head_of(context).value
    return max(0.0, (context.clock.now_ms() - max(head.complete_ms, head.since_ms)) / 1_000)


def head_of(context: Context) -> Versioned[ArchiveHead]:
    """Returns the head, and names the store if it has none yet."""
    record = head_record(context)
    begun = ArchiveHead(since_ms=context.clock.now_ms(), store=context.ids.token().hex())
    current = record.load() or record.swap(None, begun).current
    assert current is not None
    return current


def _bucket_of(span: Span) -> Bucket | None:
    if span.kind == DISPATCHES:
        return Bucket.parse(span.log)
    return Bucket.of_log(span.log) if is_schedule(span.log) else None


def _opened(record: Record) -> int:
    try:
        return _decoder.decode(record.value)
    except UNDECODABLE as error:
        raise Corrupt(f"not a watermark of the archive: {error}") from error
