"""Defines the options that jobs share.

The model of a job's options is a subclass of ``LakeOptions`` or of ``ArchiveOptions``; a job that can be limited to
some days adds ``Days``.
"""

from datetime import UTC, date, datetime, timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from hourwheel.ports.storage import Blobs
from hourwheel_pipeline.archive_rows.segment_rows import ArchiveLocation
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.tables import NAMESPACE, Lake
from hourwheel_pipeline.runs.option_faults import Location


class LakeOptions(BaseModel):
    """The options of a job on a lake. On AWS ``namespace`` is the cell's database in Glue; ``region`` and
    ``endpoint_url`` say where S3 and Glue are."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lake: Location
    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None

    def open_lake(self) -> Lake:
        """Opens the lake, and creates it if there is none. Raises ``Broken``."""
        return Lake.open(self.lake, namespace=self.namespace, region=self.region, endpoint_url=self.endpoint_url)

    def find_lake(self) -> Lake | None:
        """Opens the lake. Returns None if there is none. Raises ``Broken``."""
        return Lake.find(self.lake, namespace=self.namespace, region=self.region, endpoint_url=self.endpoint_url)


class ArchiveOptions(LakeOptions):
    """The options of a job on an archive and the lake that is built from it."""

    archive: Location

    @property
    def location(self) -> ArchiveLocation:
        """Returns the location from which workers open the archive."""
        return ArchiveLocation(self.archive, self.region, self.endpoint_url)

    def open_archive(self) -> Blobs:
        return blobs_at(*self.location)


class Days(BaseModel):
    """The days that a job reads: those from ``since`` on, or today and the ``days`` before it; without either all
    days."""

    since: date | None = None
    days: PositiveInt | None = None

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.since is not None and self.days is not None:
            raise ValueError("give since or days, not both")
        return self

    def first_day(self, now_ms: int) -> date | None:
        """Returns the first of the days; None if the job reads all days."""
        if self.days is None:
            return self.since
        return datetime.fromtimestamp(now_ms / 1_000, UTC).date() - timedelta(days=self.days)
