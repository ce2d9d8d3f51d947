"""Changes records of the registry: subjects and groups."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from hourwheel.context import Context, Settings
from hourwheel.errors import Unavailable
from hourwheel.logs.cas import CasRecord, CasResult, Versioned, value_of
from hourwheel.ports.storage import Store, atomically
from hourwheel.registry.quotas import Room

S = TypeVar("S")

_TRIES = 10  # each needs another change of the record between the read and the write


@dataclass(frozen=True)
class RecordChange(Generic[S]):
    """A change of the record of ``name`` to what ``decide`` makes of its value (None: there is none). For a value that
    is new, ``room`` is checked (None: any number of records may be stored), and then ``before`` is called. Where the
    store has transactions, both are part of the one that stores the value."""

    context: Context
    name: str
    record: CasRecord[S]
    decide: Callable[[S | None], S]
    is_new: Callable[[S | None], bool]
    room: Room | None
    before: Callable[[Store], None] | None = None

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
            outcome = (self._create if self.is_new(before) else self._replace)(current, value)
            if outcome.stored:
                return value
            current = outcome.current
        raise Unavailable(f"many requests change {self.name!r} at once: send the request again")

    def _replace(self, current: Versioned[S] | None, value: S) -> CasResult[S]:
        return self.record.swap(current, value)

    def _create(self, current: Versioned[S] | None, value: S) -> CasResult[S]:
        """Stores the value if there is room for one more; exact where the store has transactions."""
        # A tombstone is not continued: what a later version had noted in it belongs to the deleted one.
        current = None if current is None else current.replaced()
        if self.room is None and self.before is None:
            return self._replace(current, value)
        room, before = self.room or _any_number, self.before or _nothing
        settings = self.context.settings
        # Checked outside first: a work that raises makes all work in the same transaction run again.
        room(self.context.store, settings)

        def swap(inside: Store) -> CasResult[S]:
            room(inside, settings)
            before(inside)
            return replace(self.record, store=inside).swap(current, value)

        return atomically(self.context.store, swap)


def _any_number(store: Store, settings: Settings) -> None:
    """Checks nothing."""


def _nothing(store: Store) -> None:
    """Does nothing before the value is stored."""
