"""Simulates objects: one dictionary, and connections that fail like those to the store."""

from collections.abc import Callable
from typing import TypeVar

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.errors import Broken, Unavailable
from tests.simulation.outages import cut_off
from tests.simulation.store import Connection
from tests.simulation.world import Process

T = TypeVar("T")


class SimulatedBlobs(Connection):
    """Implements ``Blobs`` over one dictionary."""

    def __init__(self, process: Process, blobs: MemoryBlobs, cell: str = "") -> None:
        super().__init__(process)
        self._blobs = blobs
        self._cell = cell

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        try:
            with cut_off(self.world, self._cell, name):
                return super().call(name, about, effect)
        except (Unavailable, Broken):
            self.process.verb.unread.add(self._cell)
            raise

    def put(self, key: str, data: bytes) -> None:
        self.call("blob put", key, lambda: self._blobs.put(key, data))

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self.call("blob get", key, lambda: self._blobs.get(key, offset=offset, length=length))

    def list(self, prefix: str) -> list[str]:
        return self.call("blob list", prefix, lambda: self._blobs.list(prefix))

    def delete(self, key: str) -> None:
        self.call("blob delete", key, lambda: self._blobs.delete(key))
