"""Opens the pull logs of groups: that of the retry log, and one for each part of each queue.

A group hands out its messages in one of two ways, and has the kind of pull log that does so. ``PullLogs`` chooses it:
all that claim, settle or count ask the log, and never the group.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from hourwheel.context import Context
from hourwheel.model.groups import Group
from hourwheel.model.routes import FIRST, Mapping
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.reach.outages import all_reached


class PullLogs(Protocol):
    """Opens the pull logs of groups, each of the kind that its group needs. Thread-safe."""

    def of(self, context: Context, subject: Subject, group: Group) -> list[PullLog]:
        """Returns what ``pull_logs`` returns, to claim and to settle."""
        ...

    def log(self, context: Context, group: Group, source: str, queue: int | None) -> PullLog:
        """Returns the pull log of one source log, to settle."""
        ...

    def in_turn(self, context: Context, subject: Subject, group: Group, logs: Sequence[PullLog]) -> Sequence[PullLog]:
        """Returns those of the logs that the group may claim from now."""
        ...

    def first_parts(self, group: Group, logs: Sequence[PullLog]) -> tuple[list[PullLog], list[PullLog]]:
        """Divides logs into those to claim from first, and those that have their turn when these have no message
        left. The logs of a queue come in the order of its parts."""
        ...


LogMaker: TypeAlias = Callable[..., PullLog]
"""Makes a pull log of one kind from the fields of ``PullLog``."""


def pull_logs(context: Context, subject: Subject, group: Group, make: LogMaker = PullLog) -> list[PullLog]:
    """Returns the group's pull logs: that of its retry log, then those of the queues, each queue's oldest part first.
    Leaves out logs in cells that cannot be opened. Without ``make`` the logs serve to read rows and to seek."""
    retries = make(context, group, context.log(group.retry_log), None)
    if not subject.routes:
        origins = [*group.origins, *[0] * (subject.queues - len(group.origins))]
        return [
            retries,
            *(
                make(context, group, context.log(subject.log(queue)), queue, origins[queue])
                for queue in range(subject.queues)
            ),
        ]
    queues = range(subject.queues)
    return [retries, *(log for queue in queues for log in _queue_logs(context, subject, group, queue, make))]


def _queue_logs(context: Context, subject: Subject, group: Group, queue: int, make: LogMaker) -> list[PullLog]:
    return all_reached(partial(_part_log, context, group, queue, make), group_parts(subject, group, queue))


def _part_log(context: Context, group: Group, queue: int, make: LogMaker, part: tuple[Mapping, str, int]) -> PullLog:
    mapping, name, origin = part
    blobs = context.blobs_of(name) if group.ordered or group.filter is not None else None
    return make(context, group, context.log(name), queue, origin, mapping, blobs)


def group_parts(subject: Subject, group: Group, queue: int) -> list[tuple[Mapping, str, int]]:
    """Returns the parts of a queue, oldest first, each with the name of its log and the row at which the group begins
    there. A group that started at the latest message begins behind the parts that were closed then."""
    parts = subject.parts(queue)
    if group.start == "earliest" or queue >= len(group.origins):
        return [(mapping, log, 0) for mapping, log in parts]
    # The part that was open then may have expired: the latest one that is left need not be it.
    begun = group.origin_logs[queue] if group.origin_logs else subject.log_of(queue, FIRST)

    def origin(mapping: Mapping, log: str) -> int:
        if mapping.epoch > group.origin_epoch:
            return 0
        return group.origins[queue] if log == begun else mapping.rows

    return [(mapping, log, origin(mapping, log)) for mapping, log in parts]


def first_parts(logs: Iterable[PullLog]) -> tuple[list[PullLog], list[PullLog]]:
    """Returns the first log of each queue, and the other logs. The logs of a queue come in the order of its parts."""
    first: dict[int | None, PullLog] = {}
    later = [log for log in logs if first.setdefault(log.queue, log) is not log]
    return list(first.values()), later
