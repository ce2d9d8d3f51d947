"""Brings the watermarks and the head of a store up to the manifests of its archive, if the two belong together."""

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Conflict, Corrupt
from hourwheel.logs.cas import Versioned
from hourwheel.ports.storage import Blobs
from hourwheel.reach.outages import reached
from hourwheel.retention.chain import ChainEnd, LostManifest, find, linked, manifests
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.manifests import Manifest, Span, StoredManifest, check_format, stored
from hourwheel.retention.watermarks import ArchiveHead, advance_watermark, head_of, head_record, replace_head


def catch_up(context: Context, archive: Blobs) -> Versioned[ArchiveHead]:
    """Brings the watermarks up to the last manifest, also to manifests of an archiver that crashed after the commit.
    Returns the head then. Raises ``Conflict`` if the archive does not belong to the store, and ``OtherFormat``."""
    current = head_of(context)
    _check_last(archive, current.value)
    while (raw := stored(archive, current.value.number)) is not None:
        # Checked before the first watermark moves: an archive of another store must change nothing.
        manifest = _following(context, current.value, raw)
        current = apply(context, current, manifest, raw)
    return current


def _check_last(archive: Blobs, head: ArchiveHead) -> None:
    # A store that has seen manifests of another archive would remove rows that this archive never got.
    if not head.number:
        check_format(archive)
        return
    last = stored(archive, head.number - 1) or find(archive, head.number - 1)
    if last is None:
        check_format(archive)
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
