"""What the verbs of the queue work with: the ports, the settings, and the logs over them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

import msgspec

from hourwheel.logs.log import Log
from hourwheel.ports import Arrivals, Blobs, Clock, Ids, Meter, Store, atomically

T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a cell. Checked where they come in (``msgspec.convert``).

    ``inline_bytes``: largest encoded batch that sits in its row. DynamoDB's writes cost more than an S3 PUT
    from 8 to 13 KB on. ``directory_seconds``: how old a subject's or group's settings may be when they are used.
    """

    inline_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=300 * 1_024)] = 12 * 1_024
    directory_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 2.0


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
