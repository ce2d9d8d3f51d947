"""What a job judged: a digest, by which the next run sees whether there is anything else to judge."""

from collections.abc import Iterable
from hashlib import blake2b

from hourwheel.errors import Corrupt, NotFound
from hourwheel.ports import Blobs
from hourwheel.retention.manifests import Manifest, read
from hourwheel_pipeline.lake import Lake, files_of
from hourwheel_pipeline.schemas import SCHEMAS


def digest_of(lake: Lake, *how: object) -> str:
    """Of the data files of the three tables, of what is set aside, and of how they are judged. Files never change: so
    the rows are the same where the files are. No segment and no data file is read."""
    found = blake2b(digest_size=16)
    for text in (*(repr(one) for one in how), *_contents(lake)):
        found.update(text.encode() + b"\0")
    return found.hexdigest()


def quiet_horizon(archive: Blobs, start: int, last_manifest: int, known_ms: int) -> int | None:
    """What was stored before that time is archived by the manifests up to ``through``, where those below ``start`` say
    ``known_ms``. None where one of the others brought more than the time: rows, a catalog, or damage."""
    horizon_ms = known_ms
    for number in range(start, last_manifest + 1):
        manifest = _manifest(archive, number)
        if manifest is None or manifest.segments or manifest.spans or manifest.unreadable or manifest.missing:
            return None
        horizon_ms = max(horizon_ms, manifest.complete_ms)
    return horizon_ms


def _contents(lake: Lake) -> Iterable[str]:
    for name in SCHEMAS:
        yield name
        yield from sorted(one.key for one in lake.table_progress(name).quarantined)
        try:
            yield from sorted(file.file_path for file in files_of(lake.table(name).scan()))
        except NotFound:
            continue


def _manifest(archive: Blobs, number: int) -> Manifest | None:
    try:
        return read(archive, number)
    except Corrupt:
        return None
