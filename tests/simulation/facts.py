"""Facts: the audit's records of rows and hand-overs."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from hourwheel.handover.handover import Transfer
from hourwheel.log_names import SCHEDULE_PREFIX
from hourwheel.logs.entries import ScheduleEntry, decode_entry
from hourwheel.logs.rows import Row
from hourwheel.model import Message

NEVER = 1 << 60

Pick: TypeAlias = tuple[int, int]
Address: TypeAlias = tuple[str, int, str | None]
"""Where delayed messages go in the end: subject, its generation, the group whose retries they are."""


class LogName(NamedTuple):
    """A log's name taken apart; ``kind`` is ``queue``, ``retry``, ``dead``, ``orphans`` or ``schedule``."""

    subject: str
    generation: int
    kind: str
    queue: int | None
    member: str

    @classmethod
    def parse(cls, name: str) -> "LogName":
        if name.startswith(SCHEDULE_PREFIX):
            return cls("", 0, "schedule", None, "")
        head, kind, *rest = name.split("/")
        subject, generation = head.rsplit("~", 1)
        if rest:
            return cls(subject, int(generation), kind, None, rest[0])
        if kind == "dead":
            return cls(subject, int(generation), "orphans", None, "")
        return cls(subject, int(generation), "queue", int(kind), "")


@dataclass
class RowFact:
    """A row as it was stored, the moment in the run at which it was, and the time."""

    row: Row
    token: bytes
    messages: list[Message]
    at: int
    at_ms: int

    @property
    def entry(self) -> ScheduleEntry | None:
        """What a row of a schedule log says beside its messages."""
        # The rows of a queue expire, and have a summary of tags there.
        return decode_entry(self.row.meta) if self.row.meta and not self.row.expires_ms else None


@dataclass
class Promise:
    """A hand-over that a source record remembers: what must stand in its target, once."""

    transfer: Transfer
    expected: list[tuple[str | None, int]]
    source_expires_ms: int
    stored_row: int | None = None
    replaced: bool = False
    """Its row was filled, and its messages are promised anew under another token."""


class Promiser(NamedTuple):
    """A record that holds transfers: before, after, the log its messages come from, and where they may go: to logs,
    or, to wait, to any bucket, if they find their way to ``address`` from there."""

    before: tuple[Transfer, ...]
    after: tuple[Transfer, ...]
    source: str
    targets: frozenset[str]
    address: Address | None = None
