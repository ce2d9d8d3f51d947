"""Folds manifests into bundles, so that readers of a long archive need not read an object for each manifest.

    key      bundles/{first:012d}           the number of its first manifest
    bytes    block of the index, block of manifests … block of manifests
    index    msgpack Index
    block    msgpack [manifest, manifest …]: their bytes, as they are stored

A bundle ends before a multiple of 1,000, or earlier once its manifests have 16 MB. The next bundle begins where it
ends. So each archiver folds the manifests in the same way, and it does not matter whose bundle is stored. Bundles
repeat manifests, which stay where they are: a reader that lacks a bundle reads the manifests, and a manifest that was
lost is read from its bundle.

The index has what an inspection needs, so that a status of a long archive decodes no manifest.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt, NotFound
from hourwheel.logs.codec import HEADER_BYTES, Block, pack, stored_bytes, unpack
from hourwheel.ports.storage import Blobs
from hourwheel.retention.manifests import Manifest, Segment, StoredManifest, stored

PREFIX = "bundles/"

EVERY = 1_000
"""A bundle has at most this many manifests: 17 hours of an archiver that commits each minute."""

_BUNDLE_BYTES = 16 << 20  # the index of as many manifests stays far below the largest block
_BLOCK_BYTES = 256 << 10  # a reader has a block in memory
_LARGE = 4 << 20  # a block holds 8 MB at most
_MANIFESTS, _INDEX = 7, 8  # schemas, beside those of ``archive/blocks.py``
_LEVEL = 3  # zstandard's default


class ListedSegment(NamedTuple):
    """What a manifest says about a segment, without its logs."""

    manifest: int
    key: str
    kind: str
    bytes: int
    checksum: int
    rows: int

    @classmethod
    def of(cls, manifest: int, segment: Segment) -> Self:
        return cls(manifest, segment.key, segment.kind, segment.bytes, segment.checksum, segment.rows)


class BlockRange(NamedTuple):
    """The place of a block behind the index, and the numbers ``[first, end)`` of its manifests."""

    offset: int
    length: int
    first: int
    end: int


class Index(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The manifests ``[first, end)`` of ``store``. The ``unfolded`` ones are not in the bundle: they could not be read
    when it was written, or are too large. ``previous``: the digest of the manifest before the first one, as that one
    names it; ``digest``: the digest of the last one (both "" for an unfolded one). ``complete_ms``: the largest of the
    manifests; ``ended_ms``: that of the last one."""

    first: int
    end: int
    store: str
    previous: str
    digest: str
    complete_ms: int
    ended_ms: int
    unfolded: list[int]
    blocks: list[BlockRange]
    segments: list[ListedSegment]


_encoder = msgspec.msgpack.Encoder()
_indexes = msgspec.msgpack.Decoder(Index)
_manifests = msgspec.msgpack.Decoder(list[bytes])


def bundle_key(first: int) -> str:
    return f"{PREFIX}{first:012d}"


@dataclass
class _OpenBundle:
    """The bundle that begins with the manifest ``first``, as far as it was read."""

    first: int
    end: int
    store: str = ""
    previous: str = ""
    digest: str = ""
    complete_ms: int = 0
    ended_ms: int = 0
    size: int = 0
    unfolded: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    extents: list[BlockRange] = field(default_factory=list)
    segments: list[ListedSegment] = field(default_factory=list)
    pending: list[bytes] = field(default_factory=list)
    pending_bytes: int = 0
    block_first: int = 0

    @property
    def full(self) -> bool:
        return self.end % EVERY == 0 or self.size >= _BUNDLE_BYTES

    def skip(self) -> None:
        """Leaves the next manifest out."""
        self.close_block()
        self.unfolded.append(self.end)
        self.end += 1
        self.digest = ""

    def add(self, raw: StoredManifest, manifest: Manifest) -> None:
        if not self.pending:
            self.block_first = raw.number
        if raw.number == self.first:
            self.previous = manifest.previous
        self.store = manifest.store
        self.digest, self.ended_ms = raw.digest, manifest.ended_ms
        self.complete_ms = max(self.complete_ms, manifest.complete_ms)
        self.segments += [ListedSegment.of(raw.number, segment) for segment in manifest.segments]
        self.pending.append(raw.data)
        self.pending_bytes += len(raw.data)
        self.size += len(raw.data)
        self.end += 1
        if self.pending_bytes >= _BLOCK_BYTES:
            self.close_block()

    def close_block(self) -> None:
        if not self.pending:
            return
        block = pack(_encoder.encode(self.pending), len(self.pending), _MANIFESTS, _LEVEL)
        offset = self.extents[-1].offset + self.extents[-1].length if self.extents else 0
        self.extents.append(BlockRange(offset, len(block.data), self.block_first, self.end))
        self.blocks.append(block)
        self.pending, self.pending_bytes = [], 0

    def joined(self) -> bytes:
        self.close_block()
        index = Index(
            first=self.first,
            end=self.end,
            store=self.store,
            previous=self.previous,
            digest=self.digest,
            complete_ms=self.complete_ms,
            ended_ms=self.ended_ms,
            unfolded=self.unfolded,
            blocks=self.extents,
            segments=self.segments,
        )
        head = pack(_encoder.encode(index), self.end - self.first, _INDEX, _LEVEL)
        return b"".join([head.data, *(block.data for block in self.blocks)])


def fold(archive: Blobs, first: int) -> int:
    """Writes the bundle that begins with the manifest ``first``, unless there is one. Returns the number at which the
    bundle ends. The manifests up to the next multiple of 1,000 must have been committed. One that is missing, foreign,
    damaged or too large is left out: readers of the bundle look for its object. Raises ``Corrupt`` for a bundle that
    cannot be read."""
    try:
        return index_at(archive, first).end
    except NotFound:
        pass
    folding = _OpenBundle(first, first)
    while folding.end == first or not folding.full:
        raw = stored(archive, folding.end)
        manifest = None if raw is None or len(raw.data) > _LARGE else _readable(raw)
        if raw is None or manifest is None or folding.store not in ("", manifest.store):
            folding.skip()
        else:
            folding.add(raw, manifest)
    # Written once: an archiver that was faster has written a bundle of the same manifests.
    archive.put(bundle_key(first), folding.joined())
    return index_at(archive, first).end


def behind(archive: Blobs, first: int) -> int:
    """Returns where to go on behind the bundle that begins at ``first`` and cannot be read: at the next bundle, or at
    the next multiple of 1,000."""
    multiple = (first // EVERY + 1) * EVERY
    return next((start for start in bundle_starts(archive) if first < start < multiple), multiple)


def _readable(raw: StoredManifest) -> Manifest | None:
    try:
        return raw.opened()
    except Corrupt:
        return None


def bundle_starts(archive: Blobs) -> list[int]:
    """Returns the first number of each bundle, in order."""
    names = (key.removeprefix(PREFIX) for key in archive.list(PREFIX))
    return [int(name) for name in names if name.isdecimal()]


def index_at(archive: Blobs, first: int) -> Index:
    """Reads the index of the bundle that begins with this manifest. Raises ``NotFound`` if there is no such bundle, and
    ``Corrupt``."""
    return _index_and_start(archive, first)[0]


def _index_and_start(archive: Blobs, first: int) -> tuple[Index, int]:
    """Returns the index, and the place of the first block behind it."""
    key = bundle_key(first)
    try:
        length = stored_bytes(archive.get(key, length=HEADER_BYTES))
        payload, _ = unpack(archive.get(key, length=length), _INDEX)
        index = _indexes.decode(payload)
    except (Corrupt, *UNDECODABLE) as error:
        raise Corrupt(f"{key} is no bundle: {error}") from error
    if index.first != first or index.end <= first:
        raise Corrupt(f"{key} holds the manifests from {index.first} to {index.end - 1}")
    return index, length


def index_of(archive: Blobs, starts: list[int], number: int) -> Index | None:
    """Returns the index of the bundle with this manifest, of those that begin at ``starts``. Returns None if there is
    none, or none that can be read: the inspection of the archive reports that."""
    at = bisect_right(starts, number) - 1
    if at < 0:
        return None
    try:
        index = index_at(archive, starts[at])
    except (NotFound, Corrupt):
        return None
    return index if number < index.end else None


def bundled(archive: Blobs, first: int, start: int, below: int) -> Iterator[StoredManifest]:
    """Yields the manifests ``[start, below)`` of a bundle, in order, without the unfolded ones. Raises ``Corrupt``
    with the key of the bundle."""
    index, offset = _index_and_start(archive, first)
    for extent in index.blocks:
        if extent.end <= start or extent.first >= below:
            continue
        try:
            data = archive.get(bundle_key(first), offset=offset + extent.offset, length=extent.length)
            payload, _ = unpack(data, _MANIFESTS)
            raw = _manifests.decode(payload)
        except (Corrupt, *UNDECODABLE) as error:
            raise Corrupt(f"{bundle_key(first)}, block at {offset + extent.offset}: {error}") from error
        if len(raw) != extent.end - extent.first:
            raise Corrupt(f"{bundle_key(first)} holds {len(raw)} manifests in a block of {extent}")
        for number, manifest in enumerate(raw, extent.first):
            if start <= number < below:
                yield StoredManifest(number, manifest)
