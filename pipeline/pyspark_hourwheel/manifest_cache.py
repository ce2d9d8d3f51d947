"""Caches the segments that a reader has not read yet: reads each manifest once, and forgets it once the reader has
passed it."""

from collections.abc import Iterator, Sequence

from hourwheel.archive.reading import registry_snapshots
from hourwheel.ports.storage import Blobs
from hourwheel.retention.kinds import REGISTRY
from hourwheel.retention.manifests import stored
from hourwheel_pipeline.archive_rows.reading import Work, manifests_from
from hourwheel_pipeline.lake.locations import blobs_at
from pyspark_hourwheel.options import ReadOptions
from pyspark_hourwheel.positions import StreamPosition
from pyspark_hourwheel.subject_blocks import SubjectSegment, newest, subject_blocks_of


class ManifestCache:
    """The segments with rows of a subject, from the reader's position on. ``count``: the number of manifests of the
    archive that were seen. For one thread."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._archive = blobs_at(options.archive, options.region, options.endpoint)
        self._begin = (0, 0)
        self._end = -1  # behind the last manifest that a listing has found
        self._registry: Work | None = None
        self.segments: Sequence[SubjectSegment] = []
        self.count = 0

    def read_on(self) -> None:
        """Reads the manifests that came since the last call."""
        if self.count == self._end and not _has(self._archive, self.count):
            return
        segments = list(self.segments)
        for manifest in manifests_from(self._archive, self.count):
            segments += subject_blocks_of(manifest, self._options.subject, self._options.queue)
            self.count = manifest.number + 1
            snapshots = [segment for segment in manifest.segments if segment.kind == REGISTRY]
            if snapshots:
                self._registry = Work.of(manifest.number, snapshots[-1])
        self.segments, self._end = segments, self.count

    def check(self) -> None:
        """Raises ``ValueError`` if there is no archive, or it has no such subject. Call it after reading from the
        beginning."""
        if not self.count:
            raise ValueError(
                f"format hourwheel: nothing is archived at {self._options.archive} yet: is the option 'archive' right,"
                " and does the archive run?"
            )
        if (
            not self.segments
            and self._registry is not None
            and self._options.subject not in self._subjects(self._registry)
        ):
            raise ValueError(
                f"format hourwheel: the archive at {self._options.archive} knows no subject {self._options.subject!r}"
            )

    def generation(self) -> int:
        """Returns the generation that the options name, otherwise the newest one with a message. Raises ``ValueError``
        if the named generation has no message. Call it after reading from the beginning."""
        named = self._options.generation
        if named is None:
            return newest(self.segments)
        present = sorted({stretch.generation for segment in self.segments for stretch in segment.stretches})
        if named not in present:
            there = f"generations with messages: {', '.join(map(str, present))}" if present else "no generation has any"
            raise ValueError(
                f"format hourwheel: generation {named} of subject {self._options.subject!r} has no messages in the"
                f" archive; {there}"
            )
        return named

    def begin_at(self, position: StreamPosition) -> None:
        """Forgets the segments before the position. If segments from the position on are forgotten already, the next
        ``read_on`` reads their manifests again."""
        if position.at < self._begin or position.manifest > self.count:
            self.segments, self.count = [], position.manifest
        self.segments = list(self.after(position))
        self._begin = position.at

    def after(self, position: StreamPosition) -> Iterator[SubjectSegment]:
        """Returns the segments from that position on, including those without rows of its generation."""
        return (segment for segment in self.segments if segment.at >= position.at)

    def _subjects(self, registry: Work) -> set[str]:
        snapshots = registry_snapshots(self._archive, registry)
        return {subject.name for snapshot in snapshots for subject in snapshot.subjects}


def _has(archive: Blobs, number: int) -> bool:
    """Returns whether the archive has this manifest or the next one: two reads, and no listing, where nothing is
    new."""
    return stored(archive, number) is not None or stored(archive, number + 1) is not None
