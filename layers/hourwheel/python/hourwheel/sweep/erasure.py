"""Erases the logs of deleted subjects and groups. Idempotent; the tombstone says when the erasure is complete.

Until then a repeated deletion, the sweeper, and the creation of a new subject or group of that name by an operator
continue the erasure. So does a pull that creates a group. A send or a pull that would create the subject is refused.
"""

from collections.abc import Callable, Iterable

from hourwheel.context import Context
from hourwheel.errors import ErasureUnfinished
from hourwheel.model.groups import Group
from hourwheel.model.log_names import pull_log
from hourwheel.model.subjects import Subject
from hourwheel.ordered.snapshots import Snapshots
from hourwheel.ports.storage import Table
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.push.state import forget
from hourwheel.reach.outages import Outages
from hourwheel.registry.registry import Registry
from hourwheel.registry.removed_names import RemovedNames

_ALL = "\U0010ffff"  # sorts behind every row number


class LogErasure:
    """Trims the logs of deleted subjects and groups, and ends their pushes."""

    def erase_subject(self, context: Context, subject: Subject, groups: Iterable[Group]) -> None:
        erase_subject(context, subject, groups)

    def erase_group(self, context: Context, subject: Subject, group: Group) -> None:
        erase_group(context, subject, group)


def make_registry(context: Context, on_deletion: Callable[[RemovedNames], object] = lambda deleted: None) -> Registry:
    """Returns the registry of a deployment, which erases the logs of deleted subjects and groups. ``on_deletion`` drops
    what the process keeps by their names."""
    return Registry(context, LogErasure(), on_deletion)


def erase_subject(context: Context, subject: Subject, groups: Iterable[Group]) -> None:
    """Seals and trims the logs of a deleted subject and of its groups. Raises ``ErasureUnfinished`` after it has erased
    what is in the cells that can be reached."""
    names, outages = subject.queue_logs(), Outages()
    for name in names:
        # A producer with a cached subject meets the seal, and looks the subject up again.
        with outages.noted(name):
            context.log(name).seal()
    for group in groups:
        _erase_group(context, subject, group, outages)
    for name in names:
        with outages.noted(name):
            context.store_of(name).trim(Table.CONSUME, name, below=_ALL)
    _check_complete(f"subject {subject.name!r}", outages)


def erase_group(context: Context, subject: Subject, group: Group) -> None:
    """Seals and trims the logs of a deleted group, and removes the state of its pushes. Raises ``ErasureUnfinished``
    after it has erased what is in the cells that can be reached."""
    outages = Outages()
    _erase_group(context, subject, group, outages)
    _check_complete(_words(group), outages)


def _erase_group(context: Context, subject: Subject, group: Group, outages: Outages) -> None:
    """Erases a group as far as its logs can be reached."""
    # A settlement with a cached group meets the seal, and hands nothing over to the deleted group.
    for name in (group.retry_log, group.dead_log):
        context.log(name).seal()
    for name in (group.retry_log, *subject.queue_logs()):
        # Not ``pull_logs``: a cell that is out of reach must not be passed over.
        with outages.noted(name):
            PullLog(context, group, context.log(name), None).erase()
            if group.ordered:
                Snapshots(context, name, pull_log(group.member, name)).remove()
    for name in (group.retry_log, group.dead_log):
        context.store.trim(Table.CONSUME, name, below=_ALL)
    context.store.trim(Table.PULL, f"dead@{group.dead_log}", below=_ALL)
    forget(context, group)


def _words(group: Group) -> str:
    if group.consumer:
        return f"consumer {group.consumer!r} of group {group.shared_name!r} of subject {group.subject!r}"
    return f"group {group.name!r} of subject {group.subject!r}"


def _check_complete(deleted: str, outages: Outages) -> None:
    if names := outages.names:
        raise ErasureUnfinished(deleted, names)
