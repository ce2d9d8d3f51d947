"""Defines the audit's records of rows and hand-overs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, TypeAlias

from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import ScheduleEntry, decode_entry
from hourwheel.logs.rows import Row
from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.model.messages import Message

NEVER = 1 << 60

Pick: TypeAlias = tuple[int, int]
Address: TypeAlias = tuple[str, int, str | None]
Copied: TypeAlias = tuple[str | None, int, str | None, bool]
"""The body of a copied message, its attempt, its detail, and whether it is a suspect."""
"""The destination of delayed messages: the subject, its generation, and the group whose retries they are."""


@cache
def shared_member(member: str) -> str:
    """Returns the broadcast group of a consumer's group, and any other group itself."""
    name, plus, rest = member.partition("+")
    return f"{name}~{rest.partition('+')[0]}" if plus else member


class LogName(NamedTuple):
    """A log's name taken apart; ``kind`` is ``queue``, ``retry``, ``dead``, ``orphans`` or ``schedule``."""

    subject: str
    generation: int
    kind: str
    queue: int | None
    member: str

    @classmethod
    @cache
    def parse(cls, name: str) -> "LogName":
        if name.startswith(SCHEDULE_PREFIX):
            return cls("", 0, "schedule", None, "")
        head, kind, *rest = name.rpartition(":")[2].split("/")
        subject, generation = head.rsplit("~", 1)
        if rest:
            return cls(subject, int(generation), kind, None, rest[0])
        if kind == "dead":
            return cls(subject, int(generation), "orphans", None, "")
        return cls(subject, int(generation), "queue", int(kind.split(".")[0]), "")


@dataclass
class RowFact:
    """A row as it was stored, with the moment of the run and the time at which it was stored."""

    row: Row
    token: bytes
    messages: list[Message]
    at: int
    at_ms: int
    damaged: bool = False
    """True if its messages cannot be read any more."""

    @property
    def entry(self) -> ScheduleEntry | None:
        """Returns the entry of a row of a schedule log: due times, or a cancel marker."""
        # In a queue, whose rows expire, this field has a summary of tags.
        return decode_entry(self.row.meta) if self.row.meta and not self.row.expires_ms else None


@dataclass
class Promise:
    """A hand-over that a source record names: its target must contain these messages once."""

    transfer: Transfer
    expected: list[Copied]
    source_expires_ms: int
    source: str
    stored_row: int | None = None
    replaced: bool = False
    """Set when the row was filled, and another token promises the messages again."""


class Promiser(NamedTuple):
    """A record with transfers: its transfers before and after, the log of its messages, and their permitted targets:
    logs, or any bucket from which they get to ``address``."""

    before: tuple[Transfer, ...]
    after: tuple[Transfer, ...]
    source: str
    targets: frozenset[str]
    address: Address | None = None
    attempts: Mapping[Pick, int] = {}
    """The attempts of messages that were tried again at their place."""
