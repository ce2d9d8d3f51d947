"""The days that a job is about."""

from datetime import UTC, date, datetime, timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator


class Days(BaseModel):
    """From the day ``since`` on, or the last ``days`` before today, and today; otherwise all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    since: date | None = None
    days: PositiveInt | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.since is not None and self.days is not None:
            raise ValueError("give since or days, not both")
        return self

    def first_day(self, now_ms: int) -> date | None:
        """None: all."""
        if self.days is None:
            return self.since
        return datetime.fromtimestamp(now_ms / 1_000, UTC).date() - timedelta(days=self.days)
