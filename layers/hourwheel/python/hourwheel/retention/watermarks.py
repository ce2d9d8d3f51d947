"""How far the archive is.

    table      meta
    partition  archive                          archive/head
    sort       {kind} {log}                     head
    value      the next row, msgpack            Head, msgpack array

Manifests are what holds; these records repeat what they say, so that nobody has to read them all. A bucket's marks go
years after it: by then it has long been removed.
"""

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.errors import UNDECODABLE, Conflict, Corrupt
from hourwheel.lognames import is_schedule
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.ports import Blobs, Key, Record, Table, items_of
from hourwheel.retention.kinds import DISPATCHES, MESSAGES
from hourwheel.retention.manifests import Manifest, Span, manifests, read

_PARTITION = "archive"
_PAGE = 1_000
_BUCKETS_MS = 3 * 366 * 86_400_000

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(int)


class ArchiveHead(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``number``: of the next manifest; those before it are in the marks. ``complete_ms``: all that was stored before
    is archived, ``last_manifest_ms``: of that, what a manifest says. ``since_ms``: since when there is to be an
    archive. A pass through all logs began at ``pass_ms`` (0: the next one begins), goes on behind the mark ``resume``,
    and has left nothing out so far if ``whole``. ``catalog``: digest of the one that was archived last."""

    number: int = 0
    complete_ms: int = 0
    resume: str = ""
    pass_ms: int = 0
    complete: bool = True
    catalog: str = ""
    since_ms: int = 0
    last_manifest_ms: int = 0


def head_record(context: Context) -> CasRecord[ArchiveHead]:
    return CasRecord(context.store, context.ids, Key(Table.META, "archive/head", "head"), ArchiveHead)


def watermark_name(kind: str, log: str) -> str:
    return f"{kind} {log}"


def watermarks(context: Context) -> dict[str, int]:
    """The next row of each log that is not archived; of those without one it is the first."""
    found = items_of(context.store, Table.META, _PARTITION, page=_PAGE)
    return {name: _opened(record) for name, record in found}


def advance_watermark(context: Context, span: Span) -> None:
    """Moves the mark of a log up to the end of the span. Idempotent; a mark never goes back."""
    key = Key(Table.META, _PARTITION, watermark_name(span.kind, span.log))
    bucket = _bucket_of(span)
    expires_ms = None if bucket is None else max(bucket.end_ms, context.clock.now_ms()) + _BUCKETS_MS
    held = context.store.get(key) if span.start else None
    while held is None or _opened(held) < span.end:
        record = Record(_encoder.encode(span.end), context.ids.token(), expires_ms)
        refused = context.store.put(key, record, expect=None if held is None else held.token)
        if refused is None:
            return
        held = refused.current


def removable_below(context: Context, kind: str, log: str, below: int) -> int:
    """Up to where rows of the log may be removed that nobody needs ``below`` this one: not before they are archived,
    where they are to be."""
    if not below or not context.settings.archive:
        return below
    return min(below, watermark(context, kind, log))


def watermark(context: Context, kind: str, log: str) -> int:
    """The next row of the log that is not archived."""
    record = context.store.get(Key(Table.META, _PARTITION, watermark_name(kind, log)))
    return 0 if record is None else _opened(record)


def catch_up(context: Context, archive: Blobs) -> Versioned[ArchiveHead]:
    """The head once the marks say what all manifests do, also those of an archiver that got no further. Raises
    ``Conflict`` where the archive is not that of the store."""
    held = _head(context)
    number = held.value.number
    if number and read(archive, number - 1) is None:
        raise Conflict("archive-other", f"the archive ends before manifest {number - 1}: it is not that of this store")
    while (manifest := read(archive, held.value.number)) is not None:
        for span in manifest.spans:
            _check(context, span)
        held = apply(context, held, manifest)
    return held


def apply(context: Context, held: Versioned[ArchiveHead], manifest: Manifest) -> Versioned[ArchiveHead]:
    """Brings the marks up to the manifest, which is the head's next; the head that is there then."""
    for span in manifest.spans:
        advance_watermark(context, span)
    return replace_head(context, held, committed(held.value, manifest))


def committed(head: ArchiveHead, manifest: Manifest) -> ArchiveHead:
    """The head once the manifest is there."""
    return msgspec.structs.replace(
        head,
        number=manifest.number + 1,
        complete_ms=max(head.complete_ms, manifest.complete_ms),
        last_manifest_ms=max(head.last_manifest_ms, manifest.complete_ms),
        catalog=manifest.catalog or head.catalog,
    )


def replace_head(context: Context, held: Versioned[ArchiveHead], value: ArchiveHead) -> Versioned[ArchiveHead]:
    """Changes the head, unless somebody else has; the one that is there then."""
    after = head_record(context).swap(held.token, value).current
    assert after is not None  # it is never removed
    return after


def _check(context: Context, span: Span) -> None:
    """What is archived was given out: else the store was lost, or is an older one, since then."""
    if span.kind == MESSAGES and context.store.counter(span.log).rows < span.end:
        raise older(span.log)


def rows_beyond(context: Context, archive: Blobs) -> dict[str, int]:
    """The logs of which the archive has rows that the store never gave out, and how many: the store has lost them. One
    read where the marks say what the manifests do. Raises ``Corrupt`` for a manifest that cannot be read."""
    held = head_record(context).load()
    missing: dict[str, int] = {}
    for manifest in manifests(archive, 0 if held is None else held.value.number):
        for span in manifest.spans:
            beyond = span.end - context.store.counter(span.log).rows if span.kind == MESSAGES else 0
            if beyond > missing.get(span.log, 0):
                missing[span.log] = beyond
    return missing


def older(log: str) -> Conflict:
    return Conflict(
        "store-older",
        f"the archive has rows of {log} that the store never gave out: rebuild the store from it",
    )


def archived_ms(context: Context) -> int:
    """All that was stored before that time is archived; 0 while nothing is."""
    if not context.settings.archive:
        return context.clock.now_ms()
    held = head_record(context).load(consistent=False)
    return 0 if held is None else held.value.complete_ms


def behind_seconds(context: Context) -> float:
    """For how long not everything has been archived, since it is to be."""
    head = _head(context).value
    return max(0.0, (context.clock.now_ms() - max(head.complete_ms, head.since_ms)) / 1_000)


def _head(context: Context) -> Versioned[ArchiveHead]:
    record = head_record(context)
    held = record.load() or record.swap(None, ArchiveHead(since_ms=context.clock.now_ms())).current
    assert held is not None
    return held


def _bucket_of(span: Span) -> Bucket | None:
    if span.kind == DISPATCHES:
        return Bucket.parse(span.log)
    return Bucket.of_log(span.log) if is_schedule(span.log) else None


def _opened(record: Record) -> int:
    try:
        return _decoder.decode(record.value)
    except UNDECODABLE as error:
        raise Corrupt(f"not a mark of the archive: {error}") from error
