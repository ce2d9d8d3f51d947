"""Builds records in short form."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from hourwheel.ports.storage import Key, Record, Store, Table

T = TypeVar("T")
THREADS = 8

FAR_OFF_MS = 1_893_456_000_000
"""An expiry so far ahead that no engine removes a record while the tests run."""


def record(value: bytes = b"value", *, expires_ms: int | None = None) -> Record:
    """Returns a record with a token of its own."""
    return Record(value=value, token=os.urandom(16), expires_ms=expires_ms)


def stored(store: Store, key: Key, value: bytes = b"value") -> Record:
    """Stores a record under the key, and returns it."""
    new = record(value)
    assert store.put(key, new, expect=None) is None
    return new


def filled(store: Store, partition: str, sorts: str | list[str], table: Table = Table.CONSUME) -> dict[str, Record]:
    return {sort: stored(store, Key(table, partition, sort)) for sort in sorts}


def at_once(work: Callable[[int], T]) -> list[T]:
    """Runs ``work`` in threads that begin together, and returns the result of each."""
    barrier = Barrier(THREADS)

    def begin(thread: int) -> T:
        barrier.wait()
        return work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))
