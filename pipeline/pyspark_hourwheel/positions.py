"""Where a stream stands in the archive.

    {"manifest": 12, "place": 3, "generation": 1, "since_ms": 0}

All segments before the one at that place of that manifest are read. A manifest never changes and the next one comes
behind it, so a position splits all rows, once and for ever. Of the subject only messages of that generation are read
(0: none has been seen yet), and those that were accepted from that time on.
"""

from typing import NamedTuple, Self

from pyspark_hourwheel.subject_blocks import Piece


class Position(NamedTuple):
    manifest: int
    place: int
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
        return self.manifest, self.place

    def behind(self, piece: Piece) -> Self:
        """When that one is read, too."""
        return self._replace(manifest=piece.work.manifest, place=piece.place + 1)
