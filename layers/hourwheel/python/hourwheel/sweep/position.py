"""Stores where the next sweep goes on, if the time of a sweep ends before its subjects do.

    table      meta
    partition  sweep
    sort       position
    value      SweepPosition, msgpack array

The record is only a hint: a sweep that loses it begins anew. Several sweepers may store it, and each leaves out only
subjects that a sweep has tended since the position before.
"""

from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.ports.storage import Key, Table
from hourwheel.sweep.memory import SweepMemory

_COMPLETE = "round"


class SweepPosition(msgspec.Struct, array_like=True, frozen=True):
    """``after``: the name of the last subject that was tended. ``began_ms``: when the round through all subjects
    began."""

    after: str
    began_ms: int


@dataclass(frozen=True)
class StoredPosition:
    """Loads and stores the position of the sweeps of a deployment."""

    context: Context
    memory: SweepMemory

    def load(self) -> SweepPosition:
        """Returns where this sweep begins. Reads nothing in a process whose last sweep came to the end."""
        current = None if _COMPLETE in self.memory.done_ms else self._record.load()
        now_ms = self.context.clock.now_ms()
        # A clock that was set back would make the round seem endless.
        if current is None or current.value.began_ms > now_ms:
            return SweepPosition("", now_ms)
        return current.value

    def stop(self, position: SweepPosition) -> None:
        """Stores where the next sweep goes on, unless another sweeper has stored its position at this moment."""
        self.memory.done_ms.pop(_COMPLETE, None)
        current = self._record.load()
        self._record.swap(None if current is None else current.token, position)

    def complete(self, position: SweepPosition) -> None:
        """Removes the stored position at which the sweep began, as the sweep has come to the end of the subjects."""
        if position.after:
            current: Versioned[SweepPosition] | None = self._record.load()
            if current is not None:
                self.context.store.delete(self._record.key, expect=current.token)
        self.memory.done_ms[_COMPLETE] = self.context.clock.now_ms()

    @property
    def _record(self) -> CasRecord[SweepPosition]:
        return CasRecord(self.context.store, self.context.ids, Key(Table.META, "sweep", "position"), SweepPosition)
