"""Divides the manifests that a lake does not hold yet into steps, and finds lost manifests that were put back."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel.retention.chain import BrokenChain, ChainEnd, LinkedManifest, LostManifest, find, linked
from hourwheel.retention.manifests import Manifest, manifest_key
from hourwheel_pipeline.archive_rows.reading import Work, links_from
from hourwheel_pipeline.judging.integrity import OTHER
from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.table_progress import TableProgress


class Step(NamedTuple):
    """The segments of the manifests up to ``last_manifest``, which has this digest. ``lost``: the numbers of manifests
    that cannot be read."""

    last_manifest: int
    digest: str
    works: list[Work]
    lost: list[int]


def new_links(archive: Blobs, tables: Sequence[TableProgress]) -> Iterator[LinkedManifest | LostManifest]:
    """Yields the manifests that a table does not hold yet. Raises ``Corrupt`` if a table has taken another manifest
    than the archive has: then its rows are of another history. Raises ``BrokenChain`` and ``OtherFormat``."""
    for progress in tables:
        found = find(archive, progress.last_manifest) if progress.digest else None
        if found is not None and found.digest != progress.digest:
            raise Corrupt(f"{manifest_key(progress.last_manifest)} {OTHER}")
    first = min(tables, key=lambda progress: progress.last_manifest)
    return links_from(archive, first.last_manifest + 1, before=_place(archive, first))


def _place(archive: Blobs, progress: TableProgress) -> ChainEnd:
    """Returns the place behind the last manifest that the table holds."""
    found = find(archive, progress.last_manifest) if progress.last_manifest >= 0 else None
    link = linked(found, progress.last_manifest, ChainEnd())
    store = link.chain_end.store if isinstance(link, LinkedManifest) else ""
    return ChainEnd(store, progress.digest)


def steps_of(
    links: Iterator[LinkedManifest | LostManifest], most_bytes: int, most_segments: int, *, stop: bool
) -> Iterator[Step]:
    """Yields the steps, each of about this size. If the chain of manifests breaks, or with ``stop`` one is lost, yields
    those before as a step, and then raises ``Corrupt``."""
    step, size = Step(-1, "", [], []), 0
    try:
        for link in links:
            if isinstance(link, LostManifest):
                if stop:
                    raise Corrupt(link.reason)
                step = Step(link.number, "", step.works, [*step.lost, link.number])
                continue
            works = [Work.of(link.number, segment) for segment in link.manifest.segments if segment.kind in SCHEMAS]
            step.works.extend(works)
            step = step._replace(last_manifest=link.number, digest=link.digest)
            size += sum(work.bytes for work in works)
            if size >= most_bytes or len(step.works) >= most_segments:
                yield step
                step, size = step._replace(works=[], lost=[]), 0
    except Corrupt:
        yield step
        raise
    # Also without segments: the tables record the last manifest that they have seen.
    yield step


def put_back(archive: Blobs, lost: Sequence[int]) -> list[Manifest]:
    """Returns those of the lost manifests that can be read now, and that the manifest after them names."""
    found = []
    for number in lost:
        link = linked(find(archive, number), number, ChainEnd())
        if isinstance(link, LinkedManifest) and _is_followed(archive, link):
            found.append(link.manifest)
    return found


def _is_followed(archive: Blobs, link: LinkedManifest) -> bool:
    number = link.number + 1
    try:
        following = linked(find(archive, number), number, link.chain_end)
    except BrokenChain:
        return False
    return not isinstance(following, LostManifest) or following.kind != "foreign_manifest"
