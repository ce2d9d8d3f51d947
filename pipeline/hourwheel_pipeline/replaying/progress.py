"""How far a replay is: objects beside the tables of the lake, each written once.

    replays/{name}/plan                  what it is of, and what it sends: Plan, JSON
    replays/{name}/{chunk:012d}/{try}    is about to be sent: Attempt, JSON
    replays/{name}/{chunk:012d}/done     is stored: Done, JSON

Chunks are sent one after the other, so at most the last one is open.
"""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from hourwheel.errors import Corrupt
from hourwheel.ports import Blobs
from hourwheel_pipeline.replaying.selection import Place

T = TypeVar("T")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``unique`` begins the ids of its messages. ``through``: of the manifests up to this one."""

    unique: str
    identity: str
    last_manifest: int
    messages: int
    bytes: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """``messages`` are in the chunk, of which those at these places are sent; ``digest`` is of the whole chunk.
    ``at_ms``: before it is sent for the first time."""

    runner: str
    at_ms: int
    messages: int
    digest: str
    places: tuple[int, ...]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """``total``: messages of this chunk and those before it; ``last``: the place of the last of them."""

    total: int
    last: Place


@dataclass
class Progress:
    blobs: Blobs
    name: str

    def plan(self) -> Plan | None:
        key = self._key("plan")
        return self._read(key, Plan) if self.blobs.list(key) else None

    def begin(self, plan: Plan) -> Plan:
        """The plan that holds: that of whoever was first."""
        return self._put_once("plan", plan)

    def last(self) -> tuple[int, Done | None]:
        """The first chunk that is not done, and the one before it."""
        done = [key for key in self.blobs.list(f"replays/{self.name}/") if key.endswith("/done")]
        if not done:
            return 0, None
        return int(done[-1].split("/")[-2]) + 1, self._read(done[-1], Done)

    def attempts(self, chunk: int) -> list[Attempt]:
        """To send the chunk, in their order."""
        folder = self._key(f"{chunk:012d}/")
        return [self._read(key, Attempt) for key in self.blobs.list(folder) if not key.endswith("/done")]

    def attempt(self, chunk: int, number: int, attempt: Attempt) -> Attempt:
        """The one that holds: that of whoever was first."""
        return self._put_once(f"{chunk:012d}/{number:06d}", attempt)

    def done(self, chunk: int, done: Done) -> None:
        self._put_once(f"{chunk:012d}/done", done)

    def _put_once(self, part: str, value: T) -> T:
        key = self._key(part)
        self.blobs.put(key, msgspec.json.encode(value))
        return self._read(key, type(value))

    def _read(self, key: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(self.blobs.get(key), type=kind)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{key} is not what a replay writes: {error}") from error

    def _key(self, part: str) -> str:
        return f"replays/{self.name}/{part}"
