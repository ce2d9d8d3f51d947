"""Short ways to write down records."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from hourwheel.ports import Key, Record, Store, Table

T = TypeVar("T")
THREADS = 8

FAR_OFF_MS = 1_893_456_000_000
"""Far enough for no engine to remove a record of its own accord while the tests run."""


def record(value: bytes = b"value", *, expires_ms: int | None = None) -> Record:
    """One with a token of its own."""
    return Record(value=value, token=os.urandom(16), expires_ms=expires_ms)


def stored(store: Store, key: Key, value: bytes = b"value") -> Record:
    """A record that the key now holds."""
    new = record(value)
    assert store.put(key, new, expect=None) is None
    return new


def filled(store: Store, partition: str, sorts: str | list[str], table: Table = Table.CONSUME) -> dict[str, Record]:
    return {sort: stored(store, Key(table, partition, sort)) for sort in sorts}


def at_once(work: Callable[[int], T]) -> list[T]:
    """What ``work`` returns in each of the threads, which all begin together."""
    barrier = Barrier(THREADS)

    def begin(thread: int) -> T:
        barrier.wait()
        return work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))
