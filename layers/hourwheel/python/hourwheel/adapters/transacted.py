"""Implements the single writes of a ``Transactional`` store: each runs in a transaction of its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from hourwheel.adapters.limits import check_value
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table

T = TypeVar("T")


class TransactedWrites(ABC):
    @abstractmethod
    def transact(self, work: Callable[[Store], T]) -> T: ...

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        return self.transact(lambda store: store.add(counter, rows=rows, numbers=numbers))

    def begin(self, counter: str, *, numbers: int) -> Counter:
        return self.transact(lambda store: store.begin(counter, numbers=numbers))

    def seal(self, counter: str) -> Counter:
        return self.transact(lambda store: store.seal(counter))

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        check_value(record)
        return self.transact(lambda store: store.put(key, record, expect=expect))

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        return self.transact(lambda store: store.delete(key, expect=expect))

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        self.transact(lambda store: store.remove_many(table, partition, sorts))
