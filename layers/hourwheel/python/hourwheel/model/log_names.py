"""Builds and parses the names of logs; no other module does.

    {subject}~{generation}/{queue}                    queue: the messages that producers sent (part 0)
    {subject}~{generation}/{queue}.{part}             queue: another part of the queue, after a move
    {subject}~{generation}/{queue}.{part}.{number}    queue: a part that is used again, in this generation of the part
    {cell}:{...}                                      queue: a part in a cell other than the home cell
    {subject}~{generation}/retry/{group}~{number}     retry: the messages that one group tries again
    {subject}~{generation}/dead/{group}~{number}      dead: the messages that one group gave up
    {subject}~{generation}/dead                       orphan: delayed messages of a deleted subject
    schedule/{bucket}                                 schedule: the delayed messages of one bucket of hours

``{group}~{number}`` is a *member*: a group and its generation. The group of a consumer of a broadcast group is named
``{group}+{number}+{consumer}``. A group's pull log over a queue log or a retry log is named ``{member}@{log}``.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from hourwheel.errors import Corrupt

SCHEDULE_PREFIX = "schedule/"
HOME = ""
"""The home cell in the names of logs."""

_NAME = r"[A-Za-z0-9._-]+"
_MEMBER_NAME = r"[A-Za-z0-9._+-]+"
_CELL = r"[a-z0-9-]{1,30}"
_LOG = re.compile(
    rf"(?:({_CELL}):)?({_NAME})~(\d+)/(?:(\d+)(?:\.(\d+)(?:\.(\d+))?)?|retry/({_MEMBER_NAME}~\d+)|dead(?:/({_MEMBER_NAME}~\d+))?)",
    re.ASCII,
)
_MEMBER = re.compile(rf"({_MEMBER_NAME})~(\d+)", re.ASCII)


class LogKind(StrEnum):
    QUEUE = "queue"
    RETRY = "retry"
    DEAD = "dead"
    ORPHAN = "orphan"
    SCHEDULE = "schedule"


class Member(NamedTuple):
    """A group and its generation."""

    group: str
    generation: int

    @classmethod
    def parse(cls, text: str) -> "Member":
        """Parses ``{group}~{number}``; raises ``Corrupt`` for any other text."""
        parts = _MEMBER.fullmatch(text)
        if parts is None:
            raise Corrupt(f"{text!r} is not the name of a group and its generation")
        return cls(parts[1], int(parts[2]))

    def __str__(self) -> str:
        return f"{self.group}~{self.generation}"


class LogName(NamedTuple):
    """The parsed name of a log. ``subject`` is empty in the name of a schedule log, ``bucket`` in all other names.
    Only logs of queues have a ``part``, ``part_generation`` and ``cell`` other than the defaults.
    ``part_generation`` counts the uses of the part, from 1."""

    kind: LogKind
    subject: str = ""
    generation: int = 0
    queue: int | None = None
    member: Member | None = None
    bucket: str = ""
    part: int = 0
    part_generation: int = 1
    cell: str = HOME

    @classmethod
    def of_queue(
        cls, subject: str, generation: int, queue: int, part: int = 0, part_generation: int = 1, cell: str = HOME
    ) -> "LogName":
        return cls(
            LogKind.QUEUE, subject, generation, queue=queue, part=part, part_generation=part_generation, cell=cell
        )

    @classmethod
    def of_retries(cls, subject: str, generation: int, member: Member) -> "LogName":
        return cls(LogKind.RETRY, subject, generation, member=member)

    @classmethod
    def of_dead(cls, subject: str, generation: int, member: Member) -> "LogName":
        return cls(LogKind.DEAD, subject, generation, member=member)

    @classmethod
    def of_orphans(cls, subject: str, generation: int) -> "LogName":
        return cls(LogKind.ORPHAN, subject, generation)

    @classmethod
    def of_schedule(cls, bucket: str) -> "LogName":
        return cls(LogKind.SCHEDULE, bucket=bucket)

    @classmethod
    def parse(cls, text: str) -> "LogName":
        """Parses the name of a log of any kind; raises ``Corrupt`` for any other text."""
        return _parse(text)

    def __str__(self) -> str:
        if self.kind is LogKind.SCHEDULE:
            return SCHEDULE_PREFIX + self.bucket
        owner = f"{self.subject}~{self.generation}"
        if self.kind is LogKind.QUEUE:
            suffix = (
                f".{self.part}.{self.part_generation}"
                if self.part_generation > 1
                else f".{self.part}"
                if self.part
                else ""
            )
            return f"{self.cell and self.cell + ':'}{owner}/{self.queue}{suffix}"
        if self.kind is LogKind.ORPHAN:
            return f"{owner}/dead"
        return f"{owner}/{self.kind}/{self.member}"


@lru_cache(maxsize=10_000)
def queue_log(
    subject: str, generation: int, queue: int, part: int = 0, part_generation: int = 1, cell: str = HOME
) -> str:
    """Returns the name of a log of a queue. By default that is the first one, in the home cell, which most queues have
    for ever."""
    return str(LogName.of_queue(subject, generation, queue, part, part_generation, cell))


@lru_cache(maxsize=10_000)
def _parse(text: str) -> LogName:
    if is_schedule(text):
        return LogName.of_schedule(text.removeprefix(SCHEDULE_PREFIX))
    match = _LOG.fullmatch(text)
    if match is None:
        raise Corrupt(f"{text!r} is not the name of a log")
    cell, subject, generation, queue, part, part_generation, retrying, dead = match.groups()
    if queue is not None:
        return LogName.of_queue(
            subject, int(generation), int(queue), int(part or 0), int(part_generation or 1), cell or HOME
        )
    if cell is not None:  # all logs but those of queues are in the home cell (docs/decisions/0025)
        raise Corrupt(f"{text!r} is not the name of a log")
    if retrying is not None:
        return LogName.of_retries(subject, int(generation), Member.parse(retrying))
    if dead is not None:
        return LogName.of_dead(subject, int(generation), Member.parse(dead))
    return LogName.of_orphans(subject, int(generation))


def is_schedule(log: str) -> bool:
    """Returns whether the log is a schedule log. Takes any text and does not parse it: every read and write of a row
    calls this function."""
    return log.startswith(SCHEDULE_PREFIX)


def cell_of(log: str) -> str:
    """Returns the cell of a log. Does not parse the name: every opening of a log calls this where there are cells."""
    return log.partition(":")[0] if ":" in log else HOME


def shared_name(group: str) -> str:
    """Returns the name of a group in requests: that of the broadcast group for ``{group}+{generation}+{consumer}``."""
    return group.partition("+")[0]


def pull_log(member: str, source: str) -> str:
    """Returns the name of the pull log of ``member`` over the log ``source``."""
    return f"{member}@{source}"


def source_of(pull_log: str) -> str:
    """Returns the name of the log that a pull log reads."""
    return pull_log.partition("@")[2]


def records_of(log: str) -> str:
    """Returns the partition of ``meta`` that has the records of a log or pull log, such as trim mark and checkpoint.
    Each log has one of its own, so that a busy log does not slow others."""
    return f"log/{log}"
