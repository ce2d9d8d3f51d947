"""The segments in front of a reader: each manifest is read once, and forgotten when the reader is past it."""

from collections.abc import Iterator, Sequence

from hourwheel.archive.blocks import decode_catalog
from hourwheel.archive.segments import blocks_of
from hourwheel.retention.kinds import CATALOG
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.reading import Work, manifests_from, read_segment
from pyspark_hourwheel.options import ArchiveOptions
from pyspark_hourwheel.positions import Position
from pyspark_hourwheel.subject_blocks import Piece, newest, subject_blocks_of


class ManifestCache:
    """``known``: how many manifests there are, as far as they were looked for. For one thread."""

    def __init__(self, options: ArchiveOptions) -> None:
        self._options = options
        self._archive = blobs_at(options.archive, options.region, options.endpoint)
        self._begin = (0, 0)
        self._catalog: Work | None = None
        self.pieces: Sequence[Piece] = []
        self.known = 0

    def read_on(self) -> None:
        """Looks for new manifests."""
        pieces = list(self.pieces)
        for manifest in manifests_from(self._archive, self.known):
            pieces += subject_blocks_of(manifest, self._options.subject, self._options.queue)
            self.known = manifest.number + 1
            catalogs = [segment for segment in manifest.segments if segment.kind == CATALOG]
            if catalogs:
                self._catalog = Work.of(manifest.number, catalogs[-1])
        self.pieces = pieces

    def check(self) -> None:
        """Raises ``ValueError`` when there is no archive, or no such subject in it: for who has read it from its
        beginning."""
        if not self.known:
            raise ValueError(
                f"format hourwheel: nothing is archived at {self._options.archive} yet: is the option 'archive' right,"
                " and does the archive run?"
            )
        if not self.pieces and self._catalog is not None and self._options.subject not in self._subjects(self._catalog):
            raise ValueError(
                f"format hourwheel: the archive at {self._options.archive} knows no subject {self._options.subject!r}"
            )

    def generation(self) -> int:
        """The one that the options name, else the newest of which there is a message. Raises ``ValueError`` where the
        named one has none: for who has read the trail from its beginning."""
        wanted = self._options.generation
        if wanted is None:
            return newest(self.pieces)
        known = sorted({stretch.generation for piece in self.pieces for stretch in piece.stretches})
        if wanted not in known:
            there = f"those that have, are {', '.join(map(str, known))}" if known else "none has"
            raise ValueError(
                f"format hourwheel: generation {wanted} of subject {self._options.subject!r} has no messages in the"
                f" archive: {there}"
            )
        return wanted

    def begin_at(self, position: Position) -> None:
        """Forgets what is before, or reads it again when it was forgotten."""
        if position.at < self._begin or position.manifest > self.known:
            self.pieces, self.known = [], position.manifest
        self.pieces = list(self.after(position))
        self._begin = position.at

    def after(self, position: Position) -> Iterator[Piece]:
        """The segments from that position on, also those without rows of its generation."""
        return (piece for piece in self.pieces if piece.at >= position.at)

    def _subjects(self, catalog: Work) -> set[str]:
        data = read_segment(self._archive, catalog)
        (extent,) = blocks_of(data, CATALOG)
        found = decode_catalog(data[extent.offset : extent.offset + extent.length])
        return {subject.name for subject in found.subjects}
