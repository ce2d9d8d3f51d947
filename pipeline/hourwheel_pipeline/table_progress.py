"""What a table of the lake holds of the archive.

It has all segments of its kind that the manifests up to ``through`` name, each once, but for those that are set aside:
what could not be read. A segment is set aside as a whole, so when it was mended it can be taken as a whole.
"""

from collections.abc import Collection, Mapping

import msgspec

from hourwheel.errors import Broken

LAST_MANIFEST, QUARANTINED = "hourwheel.last-manifest", "hourwheel.quarantined"
"""Among the notes of the table."""


class QuarantinedSegment(msgspec.Struct, frozen=True):
    """A segment that could not be read, and why. ``rows``: as its manifest counts them."""

    manifest: int
    key: str
    rows: int
    reason: str


class TableProgress(msgspec.Struct, frozen=True):
    """``through``: -1 while it holds nothing."""

    last_manifest: int = -1
    quarantined: tuple[QuarantinedSegment, ...] = ()

    @classmethod
    def of(cls, notes: Mapping[str, str]) -> "TableProgress":
        """Raises ``Broken`` where the notes are not those of such a table."""
        if not notes:
            return cls()
        try:
            quarantined = msgspec.json.decode(notes[QUARANTINED], type=tuple[QuarantinedSegment, ...])
            return cls(int(notes[LAST_MANIFEST]), quarantined)
        except (KeyError, ValueError) as error:
            raise Broken(f"the table does not say what it holds of the archive: {error!r} in {dict(notes)}") from error

    @property
    def notes(self) -> dict[str, str]:
        return {LAST_MANIFEST: str(self.last_manifest), QUARANTINED: msgspec.json.encode(self.quarantined).decode()}

    def after(
        self, last_manifest: int, tried: Collection[str], failed: Collection[QuarantinedSegment]
    ) -> "TableProgress":
        """Once the segments with these keys were taken, save for those that failed."""
        kept = [one for one in self.quarantined if one.key not in tried]
        quarantined = sorted([*kept, *failed], key=lambda one: (one.manifest, one.key))
        return TableProgress(max(self.last_manifest, last_manifest), tuple(quarantined))
