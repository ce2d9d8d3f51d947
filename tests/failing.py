"""Stores that fail from one of their calls on: without an answer, with an error, or for want of room."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Broken, Corrupt, HourwheelError, NoAccess, StorageFull, Throttled
from hourwheel.ports.storage import Store
from tests.support import CallByCall

FAILURES: Mapping[str, HourwheelError] = {
    "away": Throttled("the disk does not answer"),
    "full": StorageFull("no room is left for the database"),
    "failing": Broken("the database failed: disk I/O error"),
    "damaged": Corrupt("the database file is damaged"),
    "forbidden": NoAccess("the table may not be used"),
}
"""What may happen to the storage of a cell, and the error that it raises then."""

_WRITES = frozenset({"add", "begin", "seal", "put", "delete", "trim", "collect"})
_READS = frozenset({"counter", "counters", "get", "get_many", "get_keys", "scan"})


class FailingStore(CallByCall):
    """A store without transactions. Once ``fail`` is called, the first calls succeed and all others raise the error; a
    full one only refuses to write."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.error: HourwheelError | None = None
        self._left = 0
        for name in _WRITES | _READS:
            setattr(self, name, partial(self._checked, name, getattr(self, name)))

    def fail(self, how: str, after: int = 0) -> None:
        self.error, self._left = FAILURES[how], after

    def recover(self) -> None:
        self.error = None

    @property
    def down(self) -> bool:
        """Whether the next call that needs what has failed raises the error."""
        return self.error is not None and self._left <= 0

    def check(self, *, writes: bool) -> None:
        """Counts a call, and raises the error if the store has failed by now."""
        if self.error is None:
            return
        failed, self._left = self._left <= 0, self._left - 1
        if failed and (writes or not isinstance(self.error, StorageFull)):
            raise type(self.error)(*self.error.args)  # callers note facts in an error

    def _checked(self, name: str, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.check(writes=name in _WRITES)
        return call(*args, **named)


class FailingTransactions(FailingStore):
    """A store with transactions, which fails when they are committed."""

    def transact(self, work: Callable[[Store], Any]) -> Any:
        def run(store: Store) -> Any:
            session = CallByCall(store)
            result = work(session)
            self.check(writes=bool(session.writes))
            return result

        return self._store.transact(run)
