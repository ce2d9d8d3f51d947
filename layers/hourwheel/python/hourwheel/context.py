"""What the verbs of the queue work with: the ports, the settings, and the logs over them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field

from hourwheel.logs.log import Log
from hourwheel.ports import Arrivals, Blobs, Clock, Ids, Meter, Store, atomically

T = TypeVar("T")


class Settings(BaseModel):
    """Settings of a cell."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    inline_bytes: int = Field(default=12 * 1024, ge=1_024, le=300 * 1024)
    """Largest encoded batch that sits in its row (DynamoDB: writes cost more than an S3 PUT from 8 to 13 KB on)."""

    directory_seconds: float = Field(default=2.0, ge=0, le=60)
    """How old a subject's or group's settings may be when they are used."""


@dataclass(frozen=True, kw_only=True)
class Context:
    store: Store
    blobs: Blobs
    clock: Clock
    ids: Ids
    arrivals: Arrivals
    meter: Meter
    settings: Settings = field(default_factory=Settings)

    def log(self, name: str) -> Log:
        return Log(self.store, self.clock, self.ids, name)

    def atomically(self, work: "Callable[[Context], T]") -> T:
        """Runs ``work`` on this context, in one transaction where the store has them."""
        return atomically(self.store, lambda store: work(replace(self, store=store)))
