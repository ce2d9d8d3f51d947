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
from hourwheel.errors import UNDECODABLE, Conflict, Corrupt
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model.log_names import is_schedule
from hourwheel.ports.storage import Blobs, Key, Record, Table, items_of
from hourwheel.reach.outages import reached
from hourwheel.retention.chain import ChainEnd, LostManifest, find, linked, manifests
from hourwheel.retention.kinds import DISPATCHES, MESSAGES
from hourwheel.retention.manifests import Manifest, Span, StoredManifest, stored

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
    return CasRecord(context.store, context.ids, Key(Table.META, "archive/head", "head"), ArchiveHead)


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


def catch_up(context: Context, archive: Blobs) -> Versioned[ArchiveHead]:
    """Brings the watermarks up to the last manifest, also to manifests of an archiver that crashed after the commit.
    Returns the head then. Raises ``Conflict`` if the archive does not belong to the store."""
    current = _head(context)
    _check_last(archive, current.value)
    while (raw := stored(archive, current.value.number)) is not None:
        # Checked before the first watermark moves: an archive of another store must change nothing.
        manifest = _following(context, current.value, raw)
        current = apply(context, current, manifest, raw)
    return current


def _check_last(archive: Blobs, head: ArchiveHead) -> None:
    # A store that has seen manifests of another archive would remove rows that this archive never got.
    if not head.number:
        return
    last = stored(archive, head.number - 1) or find(archive, head.number - 1)
    if last is None:
        raise Conflict(
            "archive-other", f"the archive ends before manifest {head.number - 1}: it is the archive of another store"
        )
    if head.digest not in ("", last.digest):
        raise Conflict(
            "archive-other",
            f"manifest {last.number} of the archive is not the one that this store has written: name the right archive,"
            " or put the manifest back from a copy",
        )


def _following(context: Context, head: ArchiveHead, raw: StoredManifest) -> Manifest:
    """Opens the manifest behind the head. Raises ``Conflict`` for one that does not belong to the store, and
    ``Corrupt``."""
    link = linked(raw, raw.number, ChainEnd(digest=head.digest))
    if isinstance(link, LostManifest):
        raise Corrupt(link.reason)
    for span in link.manifest.spans:
        _check(context, span)
    if head.store not in ("", link.manifest.store):
        raise Conflict(
            "archive-other",
            f"the archive is of store {link.manifest.store}, and this is store {head.store}: name the right archive, or"
            " rebuild the store from it",
        )
    return link.manifest


def apply(
    context: Context, current: Versioned[ArchiveHead], manifest: Manifest, raw: StoredManifest
) -> Versioned[ArchiveHead]:
    """Brings the watermarks up to the manifest, which must be the head's next one, and is stored as ``raw``; returns
    the new head."""
    # The head moves last: after a crash in between, the next archiver applies this manifest again.
    for span in manifest.spans:
        advance_watermark(context, span)
    return replace_head(context, current, committed(current.value, manifest, raw.digest))


def committed(head: ArchiveHead, manifest: Manifest, digest: str) -> ArchiveHead:
    """Returns the head as it is after the commit of the manifest, which has this digest."""
    return msgspec.structs.replace(
        head,
        number=manifest.number + 1,
        complete_ms=max(head.complete_ms, manifest.complete_ms),
        last_manifest_ms=max(head.last_manifest_ms, manifest.complete_ms),
        registry=manifest.registry or head.registry,
        ended_ms=max(head.ended_ms, manifest.ended_ms),
        store=manifest.store,
        digest=digest,
    )


def replace_head(context: Context, current: Versioned[ArchiveHead], value: ArchiveHead) -> Versioned[ArchiveHead]:
    """Changes the head unless another process has changed it; returns the stored head."""
    after = head_record(context).swap(current.token, value).current
    assert after is not None  # a head is never removed
    return after


def _check(context: Context, span: Span) -> None:
    # The log gave out every archived row, unless the store was lost or replaced by an older one since.
    if _given_out(context, span) < span.end:
        raise older(span.log)


def _given_out(context: Context, span: Span) -> int:
    """Returns how many rows of the span's log the store gave out. Believes the span where no counter tells so: for a
    log that holds no messages, and for one in a cell that was removed."""
    if span.kind != MESSAGES:
        return span.end
    return reached(lambda: context.store_of(span.log).counter(span.log).rows, span.end)


def rows_beyond(context: Context, archive: Blobs) -> dict[str, int]:
    """Returns the logs of which the archive has rows that the store never gave out, with the number of these rows: the
    store has lost them. One read if the watermarks contain all manifests. Raises ``Corrupt`` for a manifest that cannot
    be read."""
    current = head_record(context).load()
    missing: dict[str, int] = {}
    for manifest in manifests(archive, 0 if current is None else current.value.number):
        for span in manifest.spans:
            if (lost := span.end - _given_out(context, span)) > missing.get(span.log, 0):
                missing[span.log] = lost
    return missing


def older(log: str) -> Conflict:
    """Returns the error for an archive that is ahead of the store in this log."""
    return Conflict(
        "store-older",
        f"the archive has rows of {log} that the store never gave out: rebuild the store from it",
    )


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
    head = _head(context).value
    return max(0.0, (context.clock.now_ms() - max(head.complete_ms, head.since_ms)) / 1_000)


def _head(context: Context) -> Versioned[ArchiveHead]:
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
