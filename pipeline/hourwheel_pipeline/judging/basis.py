"""Tells whether there is anything new for a job to read: by a digest of the names of files, and by the manifests."""

from collections.abc import Iterable
from hashlib import blake2b

from hourwheel.errors import NotFound
from hourwheel.ports.storage import Blobs
from hourwheel.retention.chain import LostManifest
from hourwheel_pipeline.archive_rows.reading import links_from
from hourwheel_pipeline.lake.data_files import files_of
from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.tables import Lake


def digest_of(lake: Lake, *how: object) -> str:
    """Returns a digest of the names of the data files of the three tables, of the quarantined segments, and of ``how``:
    the limits by which the job judges the rows. Files never change, so equal names mean equal rows. Reads no segment
    and no data file."""
    digest = blake2b(digest_size=16)
    for text in (*map(repr, how), *_contents(lake)):
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


def quiet_horizon(archive: Blobs, start: int, last_manifest: int, before_ms: int) -> int | None:
    """Returns the time before which everything is archived, by the manifests up to ``last_manifest``. ``before_ms`` is
    this time by the manifests below ``start``. Returns None if a manifest from ``start`` on cannot be read, or brought
    more than a later time: rows, a snapshot of the registry, or damage."""
    horizon_ms = before_ms
    for link in links_from(archive, start, last_manifest + 1):
        if isinstance(link, LostManifest):
            return None
        manifest = link.manifest
        if manifest.segments or manifest.spans or manifest.unreadable or manifest.missing:
            return None
        horizon_ms = max(horizon_ms, manifest.complete_ms)
    return horizon_ms


def _contents(lake: Lake) -> Iterable[str]:
    for name in SCHEMAS:
        yield name
        yield from sorted(segment.key for segment in lake.table_progress(name).quarantined)
        try:
            yield from sorted(file.file_path for file in files_of(lake.table(name).scan()))
        except NotFound:
            continue
