"""Repeats the calls of a store until it answers, within a budget of time."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hourwheel.errors import Throttled, Unavailable
from hourwheel.ports.machine import Clock, Ids, Meter
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table

T = TypeVar("T")

_FIRST_PAUSE_SECONDS = 0.02  # a few times as long as a call: enough to wait for the end of a short burst
_LONGEST_PAUSE_SECONDS = 0.5  # allows several tries within the budget of 5 s


class RetryingStore:
    """A ``Store`` that repeats each call that raises ``Throttled`` or ``OutcomeUnknown``, and raises the last of these
    errors when the next try would begin after ``budget_seconds``. ``meter`` counts each ``Throttled``.

    If the answer to a write is lost, the repeated write may be ``Refused`` because the first one took effect: the
    caller recognises its own token. If the answer to an ``add`` is lost, the repeated one takes further numbers, and
    those of the first are never used. This class is not for a ``Transactional`` store: it would hide ``transact``, and
    a local engine loses no answers.
    """

    def __init__(
        self, store: Store, clock: Clock, ids: Ids, *, meter: Meter | None = None, budget_seconds: float = 5.0
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._meter = meter
        self._budget_seconds = budget_seconds

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        return self._ask(lambda: self._store.add(counter, rows=rows, numbers=numbers))

    def begin(self, counter: str, *, numbers: int) -> Counter:
        return self._ask(lambda: self._store.begin(counter, numbers=numbers))

    def seal(self, counter: str) -> Counter:
        return self._ask(lambda: self._store.seal(counter))

    def counter(self, counter: str) -> Counter:
        return self._ask(lambda: self._store.counter(counter))

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        return self._ask(lambda: self._store.counters(counters, consistent=consistent))

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        return self._ask(lambda: self._store.get(key, consistent=consistent))

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        return self._ask(lambda: self._store.get_many(table, partition, sorts, consistent=consistent))

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        return self._ask(lambda: self._store.get_keys(keys, consistent=consistent))

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        return self._ask(lambda: self._store.put(key, record, expect=expect))

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        return self._ask(lambda: self._store.delete(key, expect=expect))

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        self._ask(lambda: self._store.remove_many(table, partition, sorts))

    def scan(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        limit: int,
        reverse: bool = False,
        consistent: bool = True,
    ) -> list[tuple[str, Record]]:
        return self._ask(
            lambda: self._store.scan(table, partition, start=start, limit=limit, reverse=reverse, consistent=consistent)
        )

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        self._ask(lambda: self._store.trim(table, partition, below=below))

    def collect(self, table: Table, now_ms: int) -> None:
        self._ask(lambda: self._store.collect(table, now_ms))

    def _ask(self, call: Callable[[], T]) -> T:
        deadline_ms = self._clock.now_ms() + self._budget_seconds * 1000
        longest = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except Unavailable as error:
                if self._meter is not None and isinstance(error, Throttled):
                    self._meter.record("Throttles", 1)
                # Full jitter over (0, longest]. Never zero, so that a simulated clock reaches the end of the budget.
                pause = longest * (1.0 - self._ids.jitter())
                if self._clock.now_ms() + pause * 1000 > deadline_ms:
                    raise
            self._clock.sleep(pause)
            longest = min(longest * 2, _LONGEST_PAUSE_SECONDS)
