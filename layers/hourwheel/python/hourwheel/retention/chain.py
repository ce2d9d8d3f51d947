"""Reads the manifests of an archive in order, from bundles and from their objects, and checks that they are one chain.

Each manifest names its store and the digest of the manifest before it. So a reader notices

- a manifest of another store: it is lost to the reader, like one that is missing or damaged,
- a manifest that follows another one than its predecessor: two histories of one store were mixed, and nothing may be
  read from there on. An archive that was restored to an older moment, and written since, has such a second history.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

from hourwheel.errors import Corrupt, NotFound
from hourwheel.ports.storage import Blobs
from hourwheel.retention.bundles import Index, bundle_starts, bundled, index_of
from hourwheel.retention.manifests import (
    Manifest,
    OtherFormat,
    StoredManifest,
    check_format,
    manifest_key,
    numbers_from,
    stored,
)

Gather: TypeAlias = Callable[[Callable[[int], StoredManifest | None], Iterable[int]], Iterable[StoredManifest | None]]
"""Calls a function for each number, and returns the answers in order, as ``map`` does. Another one may call it for
several numbers at once."""


class BrokenChain(Corrupt):
    """A manifest follows another one than its predecessor."""


class ChainEnd(NamedTuple):
    """What a manifest must name as its store, and as the digest of the manifest before it; "": not known."""

    store: str = ""
    digest: str = ""


class LinkedManifest(NamedTuple):
    """A manifest that follows its predecessor, and its own digest."""

    manifest: Manifest
    digest: str

    @property
    def number(self) -> int:
        return self.manifest.number

    @property
    def chain_end(self) -> ChainEnd:
        return ChainEnd(self.manifest.store, self.digest)


class LostManifest(NamedTuple):
    """A manifest that is missing, damaged or of another store. ``reason`` is a sentence without a full stop."""

    number: int
    kind: str
    reason: str


def linked(raw: StoredManifest | None, number: int, before: ChainEnd) -> LinkedManifest | LostManifest:
    """Opens a manifest, and checks its place in the chain. Raises ``BrokenChain`` and ``OtherFormat``."""
    key = manifest_key(number)
    if raw is None:
        return LostManifest(number, "missing_manifest", f"{key} is missing, and a later one is there")
    try:
        manifest = raw.opened()
    except OtherFormat:
        raise  # the version that wrote the archive reads it: nothing is lost
    except Corrupt as error:
        return LostManifest(number, "unreadable_manifest", str(error))
    if before.store not in ("", manifest.store):
        reason = f"{key} is of store {manifest.store}, and this is the archive of store {before.store}"
        return LostManifest(number, "foreign_manifest", reason)
    if number and before.digest not in ("", manifest.previous):
        raise BrokenChain(
            f"{key} does not follow {manifest_key(number - 1)}: one of them is of another history of this store, such"
            " as a restored archive; put the right one back from a copy"
        )
    return LinkedManifest(manifest, raw.digest)


def chain(
    archive: Blobs, start: int = 0, below: int | None = None, before: ChainEnd | None = None, gather: Gather = map
) -> Iterator[LinkedManifest | LostManifest]:
    """Yields the manifests from the number ``start`` on, in order, up to the last one or those ``below`` a number, and
    for each one that is lost a ``LostManifest``. ``before``: the place of the first one, if it is known. Raises
    ``BrokenChain`` and ``OtherFormat``."""
    before = before or ChainEnd()
    for number, raw in _found(archive, start, below, gather):
        link = linked(raw, number, before)
        yield link
        before = link.chain_end if isinstance(link, LinkedManifest) else ChainEnd(before.store)


def manifests(archive: Blobs, start: int = 0, below: int | None = None, gather: Gather = map) -> Iterator[Manifest]:
    """Yields the manifests from the number ``start`` on, in order, up to the last one or those ``below`` a number.
    Raises ``Corrupt`` for one that is lost."""
    for link in chain(archive, start, below, gather=gather):
        if isinstance(link, LostManifest):
            raise Corrupt(link.reason)
        yield link.manifest


def read(archive: Blobs, number: int) -> Manifest | None:
    """Returns the manifest of this number, from its bundle if its object is missing or damaged; None if there is none.
    Raises ``Corrupt``."""
    raw = stored(archive, number)
    try:
        manifest = None if raw is None else raw.opened()
    except Corrupt:
        manifest = None
    if manifest is not None:
        return manifest
    copy = find(archive, number)
    return None if copy is None else copy.opened()


def find(archive: Blobs, number: int) -> StoredManifest | None:
    """Returns the manifest of this number as it is stored, from its bundle if that has it and can be read; None if
    there is none."""
    index = index_of(archive, bundle_starts(archive), number)
    if index is None or number in index.unfolded:
        return stored(archive, number)
    try:
        return next(bundled(archive, index.first, number, number + 1))
    except (NotFound, Corrupt):
        return stored(archive, number)  # the bundle only repeats it


def folded_end(archive: Blobs) -> int:
    """Returns the number at which the last bundle that can be read ends; 0 if there is none."""
    starts = bundle_starts(archive)
    indexes = (index_of(archive, starts, first) for first in reversed(starts))
    return next((index.end for index in indexes if index is not None), 0)


def end_of(archive: Blobs) -> int:
    """Returns the number behind the last manifest of the archive; 0 if there is none. Raises ``OtherFormat``."""
    starts = bundle_starts(archive)
    index = index_of(archive, starts, starts[-1]) if starts else None
    end = _tail_end(archive, 0 if index is None else index.end)
    if not end:
        check_format(archive)
    return end


def _found(
    archive: Blobs, start: int, below: int | None, gather: Gather
) -> Iterator[tuple[int, StoredManifest | None]]:
    """Yields each number and its manifest: None if it is missing."""
    for first, end, index in stretches(archive, start, below):
        if index is None:
            numbers = range(first, end)
            yield from zip(numbers, gather(partial(stored, archive), numbers), strict=True)
        else:
            yield from _of_bundle(archive, index, first, end)


def stretches(archive: Blobs, start: int, below: int | None) -> Iterator[tuple[int, int, Index | None]]:
    """Yields the numbers ``[first, end)`` from ``start`` on in stretches: those in a bundle, with its index, and those
    of which there are only objects. Raises ``OtherFormat`` for an archive that has only manifests of the former
    format."""
    starts = bundle_starts(archive)
    number, tail = start, False
    while not tail and (below is None or number < below):
        index = index_of(archive, starts, number)
        later = next((first for first in starts if first > number), None)
        tail = index is None and later is None
        end = _end_of_stretch(archive, number, index, later, below)
        if end <= number and not starts:
            check_format(archive)
        yield number, end, index
        number = end


def _end_of_stretch(archive: Blobs, number: int, index: Index | None, later: int | None, below: int | None) -> int:
    if index is not None:
        end = index.end
    elif later is not None:
        end = later
    else:
        end = _tail_end(archive, number) if below is None else below
    return end if below is None else min(end, below)


def _tail_end(archive: Blobs, start: int) -> int:
    return max(numbers_from(archive, start), default=start - 1) + 1


def _of_bundle(archive: Blobs, index: Index, start: int, end: int) -> Iterator[tuple[int, StoredManifest | None]]:
    number = start
    try:
        for raw in bundled(archive, index.first, start, end):
            yield from ((unfolded, stored(archive, unfolded)) for unfolded in range(number, raw.number))
            yield raw.number, raw
            number = raw.number + 1
    except Corrupt:
        pass  # the objects of the other manifests are there: a bundle only repeats them
    yield from ((unfolded, stored(archive, unfolded)) for unfolded in range(number, end))
