"""Inspects an archive: checks that its manifests are one chain without a gap, and that each segment that they name
exists with its size. A rebuild and the connector need the whole archive, including what the lake holds already.

Nothing removes objects from an archive by design, so a missing object is damage. The inspection reads the indexes of
bundles, the manifests behind the last bundle, and a listing of each day; it keeps one bundle and some days in memory.
Only with ``deep`` it reads the bundles and the segments, and compares their checksums.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import msgspec

from hourwheel.archive.reading import read_segment
from hourwheel.errors import Corrupt, NotFound
from hourwheel.ports.storage import Blobs
from hourwheel.retention.bundles import Index, bundle_key, bundle_starts, bundled, index_at
from hourwheel.retention.chain import (
    BrokenChain,
    ChainEnd,
    LinkedManifest,
    LostManifest,
    find,
    linked,
    stretches,
)
from hourwheel.retention.manifests import FORMER_FIRST, OtherFormat, StoredManifest, manifest_key, stored
from hourwheel_pipeline.archive_rows.reading import Work
from hourwheel_pipeline.lake.locations import blobs_at, object_sizes

LISTED = 100
"""A report names at most this many problems, and counts all of them."""

_THREADS = 16  # they wait for storage
_AT_ONCE = 64  # manifests, or segments with ``deep``
_KEPT = 50_000  # sizes that are kept: a bundle ends within a day, and the next one goes on there


class ArchiveProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the archive that is missing or damaged. ``says``: a sentence that tells an operator what to do."""

    kind: str
    key: str
    says: str


class ArchiveInspection(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an inspection: the numbers of checked objects and of problems. ``problems`` has the first ones.
    ``end``: the number behind the last manifest. ``ended_ms``: the end of the last commit (0: it cannot be read);
    everything that was stored before ``complete_ms`` is archived."""

    manifests: int
    segments: int
    bytes: int
    deep: bool
    count: int
    problems: list[ArchiveProblem]
    end: int = 0
    ended_ms: int = 0
    complete_ms: int = 0


def inspect(
    location: str,
    *,
    last_manifest: int = -1,
    last_digest: str = "",
    deep: bool = False,
    region: str | None = None,
    endpoint_url: str | None = None,
) -> ArchiveInspection:
    """Inspects the whole archive. ``last_manifest``: the last one that a lake holds, which must exist as well.
    ``last_digest``: its digest, if the lake knows it."""
    archive = blobs_at(location, region, endpoint_url)
    with ThreadPoolExecutor(_THREADS) as pool:
        sizes = _Sizes(lambda day: object_sizes(location, day, region, endpoint_url))
        inspector = _Inspection(archive, pool, sizes, deep)
        inspector.look()
        inspector.compare(last_manifest, last_digest)
    return inspector.result()


@dataclass
class _Sizes:
    """The sizes of segments by their keys, from listings of the days on which they were written."""

    listing: Callable[[str], Mapping[str, int]]
    known: dict[str, int] = field(default_factory=dict)
    _fresh: set[str] = field(default_factory=set)

    def age(self) -> None:
        """Says that newer segments are compared from here on: a kept listing may lack them, and is made again then."""
        self._fresh.clear()

    def size(self, key: str) -> int | None:
        """Returns the size of an object; None if it is missing."""
        day = key.rsplit("/", 2)[0]
        if day not in self._fresh:
            if len(self.known) > _KEPT:
                self.known.clear()
                self._fresh.clear()
            self.known.update(self.listing(day))
            self._fresh.add(day)
        return self.known.get(key)


@dataclass
class _Inspection:
    archive: Blobs
    pool: ThreadPoolExecutor
    sizes: _Sizes
    deep: bool
    chain_end: ChainEnd = field(default_factory=ChainEnd)
    manifests: int = 0
    segments: int = 0
    size: int = 0
    end: int = 0
    ended_ms: int = 0
    complete_ms: int = 0
    count: int = 0
    problems: list[ArchiveProblem] = field(default_factory=list)

    def look(self) -> None:
        """Inspects the manifests and their segments."""
        unseen = set(bundle_starts(self.archive))
        for first, end, index in self._stretches():
            works = self._objects(range(first, end)) if index is None else self._bundle(index)
            unseen -= set() if index is None else {index.first}
            self._segments(works)
            self.end = end
        for first in sorted(unseen):
            self._unreadable_bundle(first)

    def _stretches(self) -> Iterator[tuple[int, int, Index | None]]:
        try:
            yield from stretches(self.archive, 0, None)
        except OtherFormat as error:
            self._add("unreadable_manifest", FORMER_FIRST, str(error).removeprefix(FORMER_FIRST))

    def compare(self, last_manifest: int, last_digest: str) -> None:
        """Compares the archive with the last manifest that a lake holds."""
        for number in range(self.end, last_manifest + 1):
            why = f"the lake holds the archive up to manifest {last_manifest}"
            self._add("missing_manifest", manifest_key(number), f" is missing, though {why}: {_COPY}")
        if last_digest and last_manifest < self.end:
            found = find(self.archive, last_manifest)
            if found is not None and found.digest != last_digest:
                self._add("other_manifest", manifest_key(last_manifest), f" {OTHER}")

    def result(self) -> ArchiveInspection:
        return ArchiveInspection(
            manifests=self.manifests,
            segments=self.segments,
            bytes=self.size,
            deep=self.deep,
            count=self.count,
            problems=self.problems,
            end=self.end,
            ended_ms=self.ended_ms,
            complete_ms=self.complete_ms,
        )

    def _add(self, kind: str, key: str, rest: str) -> None:
        self.count += 1
        if len(self.problems) < LISTED:
            self.problems.append(ArchiveProblem(kind=kind, key=key, says=f"{key}{rest}"))

    def _bundle(self, index: Index) -> Sequence[Work]:
        key = manifest_key(index.first)
        if self.chain_end.store not in ("", index.store):
            self._add("foreign_manifest", key, f" is of store {index.store}, not {self.chain_end.store}: {_COPY}")
        elif index.first and self.chain_end.digest not in ("", index.previous or self.chain_end.digest):
            self._add("broken_chain", key, f" does not follow the manifest before it: {_COPY}")
        self.chain_end = ChainEnd(index.store, index.digest)
        self.manifests += index.end - index.first - len(index.unfolded)
        self.complete_ms = max(self.complete_ms, index.complete_ms)
        self.ended_ms = index.ended_ms
        works = [*index.segments, *self._objects(index.unfolded)]
        self.chain_end = ChainEnd(index.store, index.digest)
        if self.deep:
            self._read_bundle(index)
        return works

    def _read_bundle(self, index: Index) -> None:
        try:
            for found in bundled(self.archive, index.first, index.first, index.end):
                found.opened()
        except (Corrupt, NotFound) as error:
            self._add("unreadable_bundle", bundle_key(index.first), f" cannot be read ({error}): {_REMOVE}")

    def _unreadable_bundle(self, first: int) -> None:
        """Reports a bundle that no manifest was read from."""
        try:
            index_at(self.archive, first)
        except (Corrupt, NotFound) as error:
            self._add("unreadable_bundle", bundle_key(first), f" cannot be read ({error}): {_REMOVE}")

    def _objects(self, numbers: Sequence[int]) -> list[Work]:
        """Inspects manifests that are in no bundle; returns their segments."""
        works: list[Work] = []
        left = iter(numbers)
        while some := list(islice(left, _AT_ONCE)):
            for number, found in zip(some, self.pool.map(partial(stored, self.archive), some), strict=True):
                works += self._object(number, found)
        return works

    def _object(self, number: int, found: StoredManifest | None) -> Iterator[Work]:
        link = self._linked(number, found)
        if isinstance(link, LinkedManifest):
            manifest = link.manifest
            self.manifests += 1
            self.chain_end, self.ended_ms = link.chain_end, manifest.ended_ms
            self.complete_ms = max(self.complete_ms, manifest.complete_ms)
            return (Work.of(number, segment) for segment in manifest.segments)
        key = manifest_key(number)
        self.chain_end, self.ended_ms = ChainEnd(self.chain_end.store), 0
        reason = " is missing, though later ones are there" if found is None else link.reason.removeprefix(key)
        self._add(link.kind, key, f"{reason}: {_COPY}")
        return iter(())

    def _linked(self, number: int, found: StoredManifest | None) -> LinkedManifest | LostManifest:
        try:
            return linked(found, number, self.chain_end)
        except BrokenChain as error:
            return LostManifest(number, "broken_chain", str(error))
        except OtherFormat as error:
            return LostManifest(number, "unreadable_manifest", str(error))

    def _segments(self, works: Sequence[Work]) -> None:
        self.segments += len(works)
        self.size += sum(work.bytes for work in works)
        if not self.deep:
            self.sizes.age()
            known = self.sizes.known
            for work in works:
                if known.get(work.key) != work.bytes:
                    self._compare_size(work)
            return
        left = iter(works)
        while some := list(islice(left, _AT_ONCE)):
            for problem in self.pool.map(partial(_deep_problem, self.archive), some):
                if problem is not None:
                    self._add(*problem)

    def _compare_size(self, work: Work) -> None:
        size = self.sizes.size(work.key)
        if size is None:
            self._add(*_problem_of(work, "missing_segment", "is missing"))
        elif size != work.bytes:
            self._add(*_problem_of(work, "wrong_size", f"has {size} bytes, its manifest says {work.bytes}"))


_COPY = "put it back from a copy"
_REMOVE = "remove it, and readers read its manifests one by one"
OTHER = (
    "is not the one that the lake took: the archive is of another store, or was restored to an older moment and written"
    " since; name the right archive, or compact it into a new lake"
)


def _deep_problem(archive: Blobs, work: Work) -> tuple[str, str, str] | None:
    try:
        read_segment(archive, work)
    except Corrupt as error:
        reason = str(error).removeprefix("segment ")
        return _problem_of(work, "missing_segment" if reason == "is missing" else "wrong_content", reason)
    return None


def _problem_of(work: Work, kind: str, reason: str) -> tuple[str, str, str]:
    return kind, work.key, f", of manifest {work.manifest}, {reason}: {_COPY}"
