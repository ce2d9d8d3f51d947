"""Reads the manifests of an archive."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel.retention.manifests import Manifest, Segment, manifest_key, read

# Manifests are small: their readers mostly wait for storage.
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
    """Yields the manifests from number ``start`` on, in order, up to the last one. Reads one at first, then twice as
    many at once each time, up to ``_AT_ONCE``. Raises ``Corrupt`` for a manifest that cannot be read, or that is
    missing although one of the next ones exists. Larger gaps show only in a listing: see ``integrity.py``."""
    width = 1  # a reader of new manifests finds few, and the first call opens the client for all threads
    with ThreadPoolExecutor(_THREADS) as pool:
        while True:
            numbers = range(start, start + width)
            futures = [pool.submit(read, archive, number) for number in numbers]
            for i, number in enumerate(numbers):
                manifest = futures[i].result()
                if manifest is None:
                    # Also reads the manifest after these: with a width of one, a gap would look like the end.
                    later = [*(future.result() for future in futures[i + 1 :]), read(archive, numbers.stop)]
                    if not any(later):
                        return
                    manifest = _read_again(archive, number)
                yield manifest
            start += width
            width = min(2 * width, _AT_ONCE)


def _read_again(archive: Blobs, number: int) -> Manifest:
    """Reads a missing manifest again: it may have been written after it was looked for, and before the next one was.
    Raises ``Corrupt`` if it is still missing."""
    manifest = read(archive, number)
    if manifest is None:
        raise Corrupt(f"{manifest_key(number)} is missing, and a later one is there")
    return manifest
