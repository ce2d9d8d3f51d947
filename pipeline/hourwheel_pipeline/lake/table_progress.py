"""Records which segments of the archive a table of the lake contains.

The table contains, once, each segment of its kind that the manifests up to ``last_manifest`` name. Only the quarantined
segments are left out, which could not be read, and the segments of ``lost`` manifests. A segment is quarantined as a
whole, so that it can be taken as a whole once it is repaired.
"""

from collections.abc import Collection, Mapping

import msgspec

from hourwheel.errors import Broken

LAST_MANIFEST, QUARANTINED = "hourwheel.last-manifest", "hourwheel.quarantined"
DIGEST, LOST = "hourwheel.manifest-digest", "hourwheel.lost-manifests"
"""The keys of these properties among those of the table."""


class QuarantinedSegment(msgspec.Struct, frozen=True):
    """A segment that could not be read, and the reason. ``rows``: the count in its manifest."""

    manifest: int
    key: str
    rows: int
    reason: str


class TableProgress(msgspec.Struct, frozen=True):
    """The progress of one table. ``last_manifest``: -1 while the table holds nothing. ``digest``: the digest of this
    manifest; "" if it was lost. ``lost``: the numbers of the manifests that could not be read."""

    last_manifest: int = -1
    quarantined: tuple[QuarantinedSegment, ...] = ()
    digest: str = ""
    lost: tuple[int, ...] = ()

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "TableProgress":
        """Reads the progress from the properties. Raises ``Broken`` if they are not the properties of a table that is
        filled from the archive."""
        if not properties:
            return cls()
        try:
            quarantined = msgspec.json.decode(properties[QUARANTINED], type=tuple[QuarantinedSegment, ...])
            lost = msgspec.json.decode(properties.get(LOST, "[]"), type=tuple[int, ...])
            return cls(int(properties[LAST_MANIFEST]), quarantined, properties.get(DIGEST, ""), lost)
        except (KeyError, ValueError) as error:
            raise Broken(
                f"the table does not say what it holds of the archive: {error!r} in {dict(properties)}"
            ) from error

    @property
    def properties(self) -> dict[str, str]:
        return {
            LAST_MANIFEST: str(self.last_manifest),
            QUARANTINED: msgspec.json.encode(self.quarantined).decode(),
            DIGEST: self.digest,
            LOST: msgspec.json.encode(self.lost).decode(),
        }

    def after(
        self,
        last_manifest: int,
        tried: Collection[str],
        failed: Collection[QuarantinedSegment],
        *,
        digest: str = "",
        lost: Collection[int] = (),
        found: Collection[int] = (),
    ) -> "TableProgress":
        """Returns the progress after a run that tried the segments with these keys and took all but the ``failed``
        ones, up to the manifest with this digest. ``lost``: manifests that the run passed over; ``found``: those that
        it took though an earlier run had passed over them."""
        kept = [segment for segment in self.quarantined if segment.key not in tried]
        quarantined = sorted([*kept, *failed], key=lambda segment: (segment.manifest, segment.key))
        still_lost = sorted({*self.lost, *lost}.difference(found))
        if last_manifest <= self.last_manifest:
            last_manifest, digest = self.last_manifest, self.digest
        return TableProgress(last_manifest, tuple(quarantined), digest, tuple(still_lost))
