"""What a table of the lake holds of the archive.

It has all segments of its kind that the manifests up to ``through`` name, each once, but for those that are set aside:
what could not be read. A segment is set aside as a whole, so when it was mended it can be taken as a whole.
"""

from collections.abc import Collection, Mapping

import msgspec

from hourwheel.errors import Broken

THROUGH, ASIDE = "hourwheel.through", "hourwheel.aside"
"""Among the notes of the table."""


class SetAside(msgspec.Struct, frozen=True):
    """A segment that could not be read, and why. ``rows``: as its manifest counts them."""

    manifest: int
    key: str
    rows: int
    reason: str


class Holding(msgspec.Struct, frozen=True):
    """``through``: -1 while it holds nothing."""

    through: int = -1
    aside: tuple[SetAside, ...] = ()

    @classmethod
    def of(cls, notes: Mapping[str, str]) -> "Holding":
        """Raises ``Broken`` where the notes are not those of such a table."""
        if not notes:
            return cls()
        try:
            aside = msgspec.json.decode(notes[ASIDE], type=tuple[SetAside, ...])
            return cls(int(notes[THROUGH]), aside)
        except (KeyError, ValueError) as error:
            raise Broken(f"the table does not say what it holds of the archive: {error!r} in {dict(notes)}") from error

    @property
    def notes(self) -> dict[str, str]:
        return {THROUGH: str(self.through), ASIDE: msgspec.json.encode(self.aside).decode()}

    def after(self, through: int, tried: Collection[str], failed: Collection[SetAside]) -> "Holding":
        """Once the segments with these keys were taken, save for those that failed."""
        kept = [one for one in self.aside if one.key not in tried]
        aside = sorted([*kept, *failed], key=lambda one: (one.manifest, one.key))
        return Holding(max(self.through, through), tuple(aside))
