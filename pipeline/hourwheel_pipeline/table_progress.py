"""Records which segments of the archive a table of the lake contains.

The table contains, once, each segment of its kind that the manifests up to ``last_manifest`` name. Only the quarantined
segments are left out, which could not be read. A segment is quarantined as a whole, so that it can be taken as a whole
once it is repaired.
"""

from collections.abc import Collection, Mapping

import msgspec

from hourwheel.errors import Broken

LAST_MANIFEST, QUARANTINED = "hourwheel.last-manifest", "hourwheel.quarantined"
"""The keys of these properties among those of the table."""


class QuarantinedSegment(msgspec.Struct, frozen=True):
    """A segment that could not be read, and the reason. ``rows``: the count in its manifest."""

    manifest: int
    key: str
    rows: int
    reason: str


class TableProgress(msgspec.Struct, frozen=True):
    """The progress of one table. ``last_manifest``: -1 while the table holds nothing."""

    last_manifest: int = -1
    quarantined: tuple[QuarantinedSegment, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "TableProgress":
        """Reads the progress from the properties. Raises ``Broken`` if they are not the properties of a table that is
        filled from the archive."""
        if not properties:
            return cls()
        try:
            quarantined = msgspec.json.decode(properties[QUARANTINED], type=tuple[QuarantinedSegment, ...])
            return cls(int(properties[LAST_MANIFEST]), quarantined)
        except (KeyError, ValueError) as error:
            raise Broken(
                f"the table does not say what it holds of the archive: {error!r} in {dict(properties)}"
            ) from error

    @property
    def properties(self) -> dict[str, str]:
        return {LAST_MANIFEST: str(self.last_manifest), QUARANTINED: msgspec.json.encode(self.quarantined).decode()}

    def after(
        self, last_manifest: int, tried: Collection[str], failed: Collection[QuarantinedSegment]
    ) -> "TableProgress":
        """Returns the progress after a run that tried the segments with these keys and took all but the ``failed``
        ones."""
        kept = [segment for segment in self.quarantined if segment.key not in tried]
        quarantined = sorted([*kept, *failed], key=lambda segment: (segment.manifest, segment.key))
        return TableProgress(max(self.last_manifest, last_manifest), tuple(quarantined))
