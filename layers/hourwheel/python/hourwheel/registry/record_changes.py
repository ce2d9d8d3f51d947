"""Changes records of the registry: subjects and groups."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.logs.cas import CasRecord, CasResult, Versioned, token_of, value_of
from hourwheel.ports.storage import Store, atomically
from hourwheel.registry.quotas import Room

S = TypeVar("S")

_TRIES = 10  # each needs another change of the record between the read and the write


@dataclass(frozen=True)
class RecordChange(Generic[S]):
    """A change of a record to what ``decide`` makes of its value (None: there is none). ``room`` is checked for a value
    that is new (None: any number of records may be stored)."""

    context: Context
    record: CasRecord[S]
    decide: Callable[[S | None], S]
    is_new: Callable[[S | None], bool]
    room: Room | None

    def stored(self) -> S:
        """Stores the value, and returns it. Decides again where another process was faster. Raises ``Unavailable``
        after ``_TRIES``."""
        current = self.record.load()
        for _ in range(_TRIES):
            before = value_of(current)
            value = self.decide(before)
            # Nothing changes: a repeated put costs no write.
            if value == before:
                return value
            room = self.room if self.is_new(before) else None
            outcome = self._swap(current, value, room)
            if outcome.stored:
                return value
            current = outcome.current
        raise Unavailable(f"many requests change {self.record.key.sort!r} at once: send the request again")

    def _swap(self, current: Versioned[S] | None, value: S, room: Room | None) -> CasResult[S]:
        """Stores the value if there is ``room`` for one more; exact where the store has transactions."""
        expect, store, settings = token_of(current), self.context.store, self.context.settings
        if room is None:
            return self.record.swap(expect, value)
        # Checked outside first: a work that raises makes all work in the same transaction run again.
        room(store, settings)

        def swap(inside: Store) -> CasResult[S]:
            room(inside, settings)
            return replace(self.record, store=inside).swap(expect, value)

        return atomically(store, swap)
