"""What there is to read of an archive, and reading it."""

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from hourwheel.errors import Corrupt, NotFound
from hourwheel.ports import Blobs
from hourwheel.retention.manifests import Manifest, Segment, manifest_key, read

_AT_ONCE = 64
_THREADS = 16


class Work(NamedTuple):
    """A segment that is to be read."""

    manifest: int
    key: str
    kind: str
    bytes: int
    checksum: int
    rows: int

    @classmethod
    def of(cls, manifest: int, segment: Segment) -> "Work":
        return cls(manifest, segment.key, segment.kind, segment.bytes, segment.checksum, segment.rows)


def manifests_from(archive: Blobs, start: int) -> Iterator[Manifest]:
    """The manifests from that number on, in order, up to the last one; where there are many, many are read at once.
    Raises ``Corrupt`` where one cannot be read, or is missing though one of the next is there. More than that only a
    listing shows: see ``integrity.py``."""
    width = 1  # who looks for what is new finds little, and the first call alone opens the client
    with ThreadPoolExecutor(_THREADS) as pool:
        while True:
            numbers = range(start, start + width)
            found = [pool.submit(read, archive, number) for number in numbers]
            for at, number in enumerate(numbers):
                manifest = found[at].result()
                if manifest is None:
                    # The one behind is looked for as well: where only one is read at a time, a gap would be an end.
                    later = [*(one.result() for one in found[at + 1 :]), read(archive, numbers.stop)]
                    if not any(later):
                        return
                    manifest = _read_again(archive, number)
                yield manifest
            start += width
            width = min(2 * width, _AT_ONCE)


def _read_again(archive: Blobs, number: int) -> Manifest:
    """One that may have been written after we looked for it, and before we looked for the next one."""
    found = read(archive, number)
    if found is None:
        raise Corrupt(f"{manifest_key(number)} is missing, and a later one is there")
    return found


def read_segment(archive: Blobs, work: Work) -> bytes:
    """The segment, as it was written; raises ``Corrupt`` with what is wrong."""
    try:
        data = archive.get(work.key)
    except NotFound:
        raise Corrupt("segment is missing") from None
    if len(data) != work.bytes:
        raise Corrupt(f"segment has {len(data)} bytes, its manifest says {work.bytes}")
    if zlib.crc32(data) != work.checksum:
        raise Corrupt("segment fails its checksum")
    return data
