"""Finds the segments with messages of a subject, from the manifests of the archive."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.manifests import Manifest
from hourwheel_pipeline.archive_rows.names import log_owner
from hourwheel_pipeline.archive_rows.reading import Work
from hourwheel_pipeline.lake.schemas import QUEUE
from pyspark_hourwheel.columns import Window


class Stretch(NamedTuple):
    """Rows of a queue in a segment: the sequences of their messages are within ``[first, following)``."""

    log: str
    generation: int
    queue: int
    first: int
    following: int
    messages: int


class SubjectSegment(NamedTuple):
    """A segment with rows of the subject: number ``segment_no`` of its manifest, from 0."""

    work: Work
    segment_no: int
    earliest_ms: int
    latest_ms: int
    stretches: tuple[Stretch, ...]

    @property
    def at(self) -> tuple[int, int]:
        """Returns the position of the segment in the order of all segments."""
        return self.work.manifest, self.segment_no

    @property
    def messages(self) -> int:
        return sum(stretch.messages for stretch in self.stretches)

    def of(self, generation: int) -> "SubjectSegment":
        """Returns the segment with the rows of that generation alone."""
        return self._replace(stretches=tuple(stretch for stretch in self.stretches if stretch.generation == generation))

    def within(self, window: Window) -> bool:
        """Returns whether the segment may have a message within the window."""
        if window.since_ms is not None and self.latest_ms < window.since_ms:
            return False
        if window.until_ms is not None and self.earliest_ms >= window.until_ms:
            return False
        low, high = window.first, window.following
        return any(
            (low is None or stretch.following > low) and (high is None or stretch.first < high)
            for stretch in self.stretches
        )


def newest(segments: Iterable[SubjectSegment]) -> int:
    """Returns the newest generation with a message; 0 without any."""
    return max((stretch.generation for segment in segments for stretch in segment.stretches), default=0)


def subject_blocks_of(manifest: Manifest, subject: str, queue: int | None) -> Iterator[SubjectSegment]:
    """Yields the segments of the manifest with messages of the subject, or of one of its queues, in order."""
    for segment_no, segment in enumerate(manifest.segments):
        if segment.kind != MESSAGES:
            continue
        stretches = []
        for part in segment.parts:
            if not part.messages or subject not in part.log:
                continue  # without parsing the names of all other logs
            log = log_owner(part.log)
            if (
                log.kind == QUEUE
                and log.subject == subject
                and log.generation is not None
                and log.queue is not None
                and queue in {None, log.queue}
            ):
                stretches.append(
                    Stretch(part.log, log.generation, log.queue, part.first, part.following, part.messages)
                )
        if stretches:
            work = Work.of(manifest.number, segment)
            yield SubjectSegment(work, segment_no, segment.earliest_ms, segment.latest_ms, tuple(stretches))
