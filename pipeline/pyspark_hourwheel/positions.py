"""Defines the position of a stream in the archive.

    {"manifest": 12, "segment_no": 3, "generation": 1, "since_ms": 0}

The stream has read all segments of that manifest before segment ``segment_no``. Manifests never change, and new ones
follow, so a position always splits the rows in the same way. The stream reads only messages of that generation of the
subject (0: none was seen yet), accepted at ``since_ms`` or later.
"""

from typing import NamedTuple, Self

from pyspark_hourwheel.subject_blocks import SubjectSegment


class StreamPosition(NamedTuple):
    manifest: int
    segment_no: int
    generation: int
    since_ms: int

    @classmethod
    def of(cls, offset: dict[str, int]) -> Self:
        return cls(**offset)

    @property
    def offset(self) -> dict[str, int]:
        return self._asdict()

    @property
    def at(self) -> tuple[int, int]:
        return self.manifest, self.segment_no

    def behind(self, segment: SubjectSegment) -> Self:
        """Returns the position after that segment."""
        return self._replace(manifest=segment.work.manifest, segment_no=segment.segment_no + 1)
