"""Records the progress of a replay in objects beside the tables of the lake, each written once.

    replays/{name}/plan                  its selection and its totals: ReplayPlan, JSON
    replays/{name}/{chunk:012d}/{try}    the chunk is about to be sent: SendAttempt, JSON
    replays/{name}/{chunk:012d}/done     the chunk is stored: Done, JSON

Chunks are sent one after the other, so at most the last one is open.
"""

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from hourwheel.errors import Corrupt
from hourwheel.ports.storage import Blobs
from hourwheel_pipeline.replaying.selection import ReplayPosition

T = TypeVar("T")


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The selection and the totals of a replay. ``unique``: the beginning of the ids of its messages.
    ``last_manifest``: the last manifest whose messages it sends."""

    unique: str
    identity: str
    last_manifest: int
    messages: int
    bytes: int


class SendAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to send a chunk of ``messages`` messages, of which it sends those at ``indexes``. ``digest``: the
    digest of the whole chunk. ``at_ms``: a time before the first request."""

    runner: str
    at_ms: int
    messages: int
    digest: str
    indexes: tuple[int, ...]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that is stored. ``total``: the messages of this chunk and of all before it. ``last``: the position of the
    chunk's last message."""

    total: int
    last: ReplayPosition


@dataclass
class ReplayProgress:
    """Reads and writes the records of one replay."""

    blobs: Blobs
    name: str

    def plan(self) -> ReplayPlan | None:
        key = self._key("plan")
        return self._read(key, ReplayPlan) if self.blobs.list(key) else None

    def begin(self, plan: ReplayPlan) -> ReplayPlan:
        """Writes the plan, unless another run has written one. Returns the stored plan."""
        return self._put_once("plan", plan)

    def last(self) -> tuple[int, Done | None]:
        """Returns the number of the first chunk that is not done, and the record of the chunk before it."""
        done = [key for key in self.blobs.list(f"replays/{self.name}/") if key.endswith("/done")]
        if not done:
            return 0, None
        return int(done[-1].split("/")[-2]) + 1, self._read(done[-1], Done)

    def attempts(self, chunk: int) -> list[SendAttempt]:
        """Returns the attempts to send the chunk, in order."""
        folder = self._key(f"{chunk:012d}/")
        return [self._read(key, SendAttempt) for key in self.blobs.list(folder) if not key.endswith("/done")]

    def attempt(self, chunk: int, number: int, attempt: SendAttempt) -> SendAttempt:
        """Writes the attempt, unless another run has written one under this number. Returns the stored attempt."""
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
