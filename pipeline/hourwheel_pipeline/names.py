"""Reads the positions of messages in the tables of the lake from the names of logs (``hourwheel/log_names.py``)."""

from functools import lru_cache
from typing import NamedTuple, Self

from hourwheel.errors import Corrupt
from hourwheel.log_names import LogKind, LogName, Member, source_of
from hourwheel.logs.entries import DueTimes
from hourwheel_pipeline.schemas import DEAD, ORPHAN, QUEUE, RETRY, SCHEDULE

_KINDS = {
    LogKind.QUEUE: QUEUE,
    LogKind.RETRY: RETRY,
    LogKind.DEAD: DEAD,
    LogKind.ORPHAN: ORPHAN,
    LogKind.SCHEDULE: SCHEDULE,
}


PULL_LOG = r"^(.+)~(\d+)@(?:[^:]+:)?(.+)~(\d+)/"
"""Matches the names of pull logs in Spark. Names of groups and subjects have no colon: it ends that of a cell."""

PULL_LOG_PARTS = {"group": 1, "group_generation": 2, "subject": 3, "generation": 4}
"""The groups of ``PULL_LOG``."""


class LogOwner(NamedTuple):
    """A log, and the subject, queue or group that it belongs to."""

    log: str
    kind: str
    subject: str = ""
    generation: int | None = None
    queue: int | None = None
    group: str | None = None
    group_generation: int | None = None

    def planned(self, due_times: DueTimes) -> Self:
        """Returns the place in a schedule log for messages with these due times. Raises ``Corrupt``."""
        group, number = (None, None) if due_times.member is None else Member.parse(due_times.member)
        return self._replace(
            subject=due_times.subject, generation=due_times.generation, group=group, group_generation=number
        )


@lru_cache(maxsize=10_000)
def log_owner(log: str) -> LogOwner:
    """Returns what the name of a log says. Raises ``Corrupt`` for a name of no log."""
    name = LogName.parse(log)
    kind = _KINDS[name.kind]
    if name.kind is LogKind.SCHEDULE:
        return LogOwner(log, kind)
    group, number = name.member or (None, None)
    return LogOwner(log, kind, name.subject, name.generation, name.queue, group, number)


class PullLogOwner(NamedTuple):
    """A pull log: the group that it belongs to, and the log that it reads."""

    group: str
    group_generation: int
    source: LogOwner


@lru_cache(maxsize=10_000)
def pull_log_owner(partition: str) -> PullLogOwner:
    """Returns what the name of a pull log says. Raises ``Corrupt`` for a name of no pull log."""
    member, place = Member.parse(partition.partition("@")[0]), log_owner(source_of(partition))
    if place.generation is None:
        raise Corrupt(f"{partition!r} is not the name of a pull log")
    return PullLogOwner(*member, place)
