"""What the ledger remembers of rows and hand-overs."""

from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.logs.handover import Transfer
from hourwheel.logs.rows import Row
from hourwheel.model import Message


class LogName(NamedTuple):
    """A log's name taken apart; ``kind`` is ``queue``, ``retry`` or ``dead``."""

    subject: str
    generation: int
    kind: str
    queue: int | None
    member: str

    @classmethod
    def parse(cls, name: str) -> "LogName":
        head, kind, *rest = name.split("/")
        subject, generation = head.rsplit("~", 1)
        if rest:
            return cls(subject, int(generation), kind, None, rest[0])
        return cls(subject, int(generation), "queue", int(kind), "")


@dataclass
class RowFact:
    """A row as it was stored, and the moment in the run at which it was."""

    row: Row
    token: bytes
    messages: list[Message]
    at: int


@dataclass
class Promise:
    """A hand-over that a source record remembers: what must stand in its target, once."""

    transfer: Transfer
    expected: list[tuple[str | None, int]]
    source_expires_ms: int
    landed: int | None = None


class Promiser(NamedTuple):
    """A record that holds transfers: before, after, and the log its messages come from."""

    before: tuple[Transfer, ...]
    after: tuple[Transfer, ...]
    source: str
    targets: frozenset[str]
