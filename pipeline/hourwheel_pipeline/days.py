"""The option of a job that limits it to some days."""

from datetime import UTC, date, datetime, timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator


class Days(BaseModel):
    """The days from ``since`` on, or today and the ``days`` before it; without either all days."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: date | None = None
    days: PositiveInt | None = None

    @model_validator(mode="after")
    def _not_both(self) -> Self:
        if self.since is not None and self.days is not None:
            raise ValueError("give since or days, not both")
        return self

    def first_day(self, now_ms: int) -> date | None:
        """Returns the first of the days; None if all days are meant."""
        if self.days is None:
            return self.since
        return datetime.fromtimestamp(now_ms / 1_000, UTC).date() - timedelta(days=self.days)
