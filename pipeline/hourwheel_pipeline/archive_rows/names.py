"""Reads the subject, and the queue or group, from the name of a log (``hourwheel/model/log_names.py``)."""

from functools import lru_cache
from typing import NamedTuple, Self

from hourwheel.errors import Corrupt
from hourwheel.logs.entries import DueTimes
from hourwheel.model.log_names import LogKind, LogName, Member, source_of
from hourwheel_pipeline.lake.schemas import DEAD, ORPHAN, QUEUE, RETRY, SCHEDULE

_KINDS = {
    LogKind.QUEUE: QUEUE,
    LogKind.RETRY: RETRY,
    LogKind.DEAD: DEAD,
    LogKind.ORPHAN: ORPHAN,
    LogKind.SCHEDULE: SCHEDULE,
}


PULL_LOG = r"^(.+)~(\d+)@(?:[^:]+:)?(.+)~(\d+)/"
"""Matches the names of pull logs in Spark. A colon ends the name of a cell: names of groups and subjects have none."""

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
        """Returns the owner of the messages in a schedule log that have these due times: with their subject, and for
        retries with their group. Raises ``Corrupt`` if the due times do not name a group of this form."""
        group, number = (None, None) if due_times.member is None else Member.parse(due_times.member)
        return self._replace(
            subject=due_times.subject, generation=due_times.generation, group=group, group_generation=number
        )


@lru_cache(maxsize=10_000)
def log_owner(log: str) -> LogOwner:
    """Returns the owner of the log of this name. Raises ``Corrupt`` if no log can have the name."""
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
    """Returns the owner of the pull log of this name. Raises ``Corrupt`` if no pull log can have the name."""
    member, source = Member.parse(partition.partition("@")[0]), log_owner(source_of(partition))
    if source.generation is None:
        raise Corrupt(f"{partition!r} is not the name of a pull log")
    return PullLogOwner(*member, source)
