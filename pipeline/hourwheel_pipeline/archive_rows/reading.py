"""Reads the manifests of an archive, several at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeAlias, TypeVar

from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel.retention.bundles import ListedSegment, bundle_starts, index_of
from hourwheel.retention.chain import ChainEnd, LinkedManifest, LostManifest, chain, read
from hourwheel.retention.manifests import Manifest

# Manifests are small: their readers mostly wait for storage.
_AT_ONCE = 64
_THREADS = 16

T = TypeVar("T")
A = TypeVar("A")

Work: TypeAlias = ListedSegment
"""A segment that is to be read."""


def links_from(
    archive: Blobs, start: int, below: int | None = None, before: ChainEnd | None = None
) -> Iterator[LinkedManifest | LostManifest]:
    """Yields the manifests from number ``start`` on, in order, up to the last one or those ``below`` a number, and what
    is known of each one that is lost. Raises ``BrokenChain`` and ``OtherFormat``."""
    with ThreadPoolExecutor(_THREADS) as pool:

        def gather(call: Callable[[T], A], values: Iterable[T]) -> Iterator[A]:
            left = iter(values)
            while some := list(islice(left, _AT_ONCE)):
                yield from pool.map(call, some)

        yield from chain(archive, start, below, before, gather)


def manifests_from(archive: Blobs, start: int, below: int | None = None) -> Iterator[Manifest]:
    """Yields the manifests from number ``start`` on, in order, up to the last one or those ``below`` a number. Raises
    ``Corrupt`` for a manifest that is lost."""
    for link in links_from(archive, start, below):
        if isinstance(link, LostManifest):
            raise Corrupt(link.reason)
        yield link.manifest


def newest_first(archive: Blobs, last_manifest: int, kind: str) -> Iterator[Work]:
    """Yields the segments of a kind in the manifests up to ``last_manifest``, those of the last manifest first. Passes
    over manifests that are missing. Raises ``Corrupt``."""
    starts = bundle_starts(archive)
    number = last_manifest
    while number >= 0:
        index = index_of(archive, starts, number)
        if index is None:
            yield from _listed(archive, number, kind)
            number -= 1
            continue
        works = [work for work in index.segments if work.kind == kind]
        works += [work for unfolded in index.unfolded for work in _listed(archive, unfolded, kind)]
        yield from sorted((work for work in works if work.manifest <= number), reverse=True)
        number = index.first - 1


def _listed(archive: Blobs, number: int, kind: str) -> Sequence[Work]:
    manifest = read(archive, number)
    segments = () if manifest is None else manifest.segments
    return [Work.of(number, segment) for segment in segments if segment.kind == kind]
