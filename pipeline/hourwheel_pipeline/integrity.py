"""Inspects an archive: checks that its manifests are numbered without a gap, and that each segment that they name
exists with its size. A rebuild and the connector need the whole archive, including what the lake holds already.

Nothing removes objects from an archive by design, so a missing object is damage. The inspection takes a listing and the
manifests; only with ``deep`` it reads the segments and compares their checksums.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from hourwheel.archive.reading import read_segment
from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel.retention.manifests import PREFIX, Manifest, manifest_key, read
from hourwheel_pipeline.locations import blobs_at, object_sizes
from hourwheel_pipeline.reading import Work

LISTED = 100
"""A report names at most this many problems, and counts all of them."""

_SEGMENTS = "segments"
_THREADS = 16  # they wait for storage


class ArchiveProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the archive that is missing or damaged. ``says``: a sentence that tells an operator what to do."""

    kind: str
    key: str
    says: str


class ArchiveInspection(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an inspection: the numbers of checked objects and of problems. ``problems`` has the first ones."""

    manifests: int
    segments: int
    bytes: int
    deep: bool
    count: int
    problems: list[ArchiveProblem]


def inspect(
    location: str,
    *,
    last_manifest: int = -1,
    deep: bool = False,
    region: str | None = None,
    endpoint_url: str | None = None,
) -> ArchiveInspection:
    """Inspects the whole archive. ``last_manifest``: the last one that a lake holds, which must exist as well."""
    archive = blobs_at(location, region, endpoint_url)
    numbers = manifest_numbers(archive)
    problems = list(gaps(numbers, last_manifest))
    with ThreadPoolExecutor(_THREADS) as pool:
        answers = list(pool.map(partial(_read, archive), numbers))
        manifests = [answer for answer in answers if isinstance(answer, Manifest)]
        problems += [answer for answer in answers if isinstance(answer, ArchiveProblem)]
        # Listed after the manifests were read: a segment is written before the manifest that names it.
        sizes = object_sizes(f"{location.rstrip('/')}/{_SEGMENTS}", region, endpoint_url)
        works = [Work.of(manifest.number, segment) for manifest in manifests for segment in manifest.segments]
        compare = partial(_deep_problem, archive) if deep else partial(_problem, sizes)
        problems += [problem for problem in pool.map(compare, works) if problem is not None]
    return ArchiveInspection(
        manifests=len(numbers),
        segments=len(works),
        bytes=sum(work.bytes for work in works),
        deep=deep,
        count=len(problems),
        problems=problems[:LISTED],
    )


def manifest_numbers(archive: Blobs) -> list[int]:
    """Returns the numbers of the manifests that exist, in order, from one listing."""
    names = (key.removeprefix(PREFIX) for key in archive.list(PREFIX))
    return sorted(int(name) for name in names if name.isdecimal())


def gaps(numbers: list[int], last_manifest: int = -1) -> Iterator[ArchiveProblem]:
    """Yields the manifests that are missing below the last one that exists, and up to ``last_manifest``, which a lake
    holds."""
    last = numbers[-1] if numbers else -1
    for number in sorted(set(range(max(last, last_manifest) + 1)).difference(numbers)):
        key = manifest_key(number)
        why = "later ones are there" if number < last else f"the lake holds the archive up to manifest {last_manifest}"
        yield ArchiveProblem(
            kind="missing_manifest", key=key, says=f"{key} is missing, though {why}: put it back from a copy"
        )


def _read(archive: Blobs, number: int) -> Manifest | ArchiveProblem:
    key = manifest_key(number)
    try:
        manifest = read(archive, number)
    except Corrupt as error:
        return ArchiveProblem(kind="unreadable_manifest", key=key, says=f"{error}: put it back from a copy")
    if manifest is None:
        return ArchiveProblem(
            kind="missing_manifest", key=key, says=f"{key} was removed during the inspection of the archive"
        )
    return manifest


def _problem(sizes: Mapping[str, int], work: Work) -> ArchiveProblem | None:
    size = sizes.get(work.key.removeprefix(f"{_SEGMENTS}/"))
    if size is None:
        return _problem_of(work, "missing_segment", "is missing")
    if size != work.bytes:
        return _problem_of(work, "wrong_size", f"has {size} bytes, its manifest says {work.bytes}")
    return None


def _deep_problem(archive: Blobs, work: Work) -> ArchiveProblem | None:
    try:
        read_segment(archive, work)
    except Corrupt as error:
        reason = str(error).removeprefix("segment ")
        return _problem_of(work, "missing_segment" if reason == "is missing" else "wrong_content", reason)
    return None


def _problem_of(work: Work, kind: str, reason: str) -> ArchiveProblem:
    says = f"{work.key}, of manifest {work.manifest}, {reason}: put it back from a copy"
    return ArchiveProblem(kind=kind, key=work.key, says=says)
