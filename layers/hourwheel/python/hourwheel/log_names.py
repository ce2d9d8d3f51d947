"""Builds and parses the names of logs; no other module does.

    {subject}~{generation}/{queue}                    queue: the messages that producers sent
    {subject}~{generation}/retry/{group}~{number}     retry: the messages that one group tries again
    {subject}~{generation}/dead/{group}~{number}      dead: the messages that one group gave up
    {subject}~{generation}/dead                       orphan: delayed messages of a deleted subject
    schedule/{bucket}                                 schedule: the delayed messages of one bucket of hours

``{group}~{number}`` is a *member*: a group and its generation. A group's pull log over one of the first two kinds is
named ``{member}@{log}``.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from hourwheel.errors import Corrupt

SCHEDULE_PREFIX = "schedule/"
_NAME = r"[A-Za-z0-9._-]+"
_LOG = re.compile(rf"({_NAME})~(\d+)/(?:(\d+)|retry/({_NAME}~\d+)|dead(?:/({_NAME}~\d+))?)", re.ASCII)
_MEMBER = re.compile(rf"({_NAME})~(\d+)", re.ASCII)


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
    """The parsed name of a log. ``subject`` is empty in the name of a schedule log, ``bucket`` in all other names."""

    kind: LogKind
    subject: str = ""
    generation: int = 0
    queue: int | None = None
    member: Member | None = None
    bucket: str = ""

    @classmethod
    def of_queue(cls, subject: str, generation: int, queue: int) -> "LogName":
        return cls(LogKind.QUEUE, subject, generation, queue=queue)

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
            return f"{owner}/{self.queue}"
        if self.kind is LogKind.ORPHAN:
            return f"{owner}/dead"
        return f"{owner}/{self.kind}/{self.member}"


@lru_cache(maxsize=10_000)
def _parse(text: str) -> LogName:
    if is_schedule(text):
        return LogName.of_schedule(text.removeprefix(SCHEDULE_PREFIX))
    parts = _LOG.fullmatch(text)
    if parts is None:
        raise Corrupt(f"{text!r} is not the name of a log")
    subject, generation, queue, retrying, dead = parts.groups()
    if queue is not None:
        return LogName.of_queue(subject, int(generation), int(queue))
    if retrying is not None:
        return LogName.of_retries(subject, int(generation), Member.parse(retrying))
    if dead is not None:
        return LogName.of_dead(subject, int(generation), Member.parse(dead))
    return LogName.of_orphans(subject, int(generation))


def is_schedule(log: str) -> bool:
    """Returns whether the log is a schedule log. Takes any text and does not parse it: every read and write of a row
    calls this function."""
    return log.startswith(SCHEDULE_PREFIX)


def pull_log(member: str, source: str) -> str:
    """Returns the name of the pull log of ``member`` over the log ``source``."""
    return f"{member}@{source}"


def source_of(pull_log: str) -> str:
    """Returns the name of the log that a pull log reads."""
    return pull_log.partition("@")[2]
