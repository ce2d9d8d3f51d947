"""Erasure: what a deleted subject or group leaves goes. Idempotent; a tombstone says once it is done.

Until then whoever finds the tombstone goes on: another deletion, the sweeper, or who makes it again.
"""

from collections.abc import Iterable

from hourwheel.context import Context
from hourwheel.model import Group, Subject
from hourwheel.ports import Table
from hourwheel.push.state import forget
from hourwheel.queueing.pulllog import pull_logs
from hourwheel.registry.registry import Registry

_ALL = "\U0010ffff"


class LogErasure:
    """Trims the logs of deleted subjects and groups, and ends their pushes."""

    def erase_subject(self, context: Context, subject: Subject, groups: Iterable[Group]) -> None:
        erase_subject(context, subject, groups)

    def erase_group(self, context: Context, subject: Subject, group: Group) -> None:
        erase_group(context, subject, group)


def make_registry(context: Context) -> Registry:
    """The registry of a cell, which erases what it deletes."""
    return Registry(context, LogErasure())


def erase_subject(context: Context, subject: Subject, groups: Iterable[Group]) -> None:
    logs = [context.log(subject.log(queue)) for queue in range(subject.queues)]
    for log in logs:
        # Sealed: whoever still sends to it finds out, and looks the subject up again.
        log.seal()
    for group in groups:
        erase_group(context, subject, group)
    for log in logs:
        context.store.trim(Table.CONSUME, log.name, below=_ALL)


def erase_group(context: Context, subject: Subject, group: Group) -> None:
    for name in (group.retry_log, group.dead_log):
        context.log(name).seal()
    for log in pull_logs(context, subject, group):
        context.store.trim(Table.PULL, log.partition, below=_ALL)
    for name in (group.retry_log, group.dead_log):
        context.store.trim(Table.CONSUME, name, below=_ALL)
    context.store.trim(Table.PULL, f"dead@{group.dead_log}", below=_ALL)
    forget(context, group)
