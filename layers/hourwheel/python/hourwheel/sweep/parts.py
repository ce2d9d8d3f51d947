"""Finishes moves of queues that were cut off, and expires the closed parts of queues once they are empty."""

from collections.abc import Iterable, Mapping

from hourwheel.cells.moves import expire, finish_change, refresh_route
from hourwheel.context import Context
from hourwheel.model import routes
from hourwheel.model.groups import Group
from hourwheel.model.log_names import pull_log
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter, Table
from hourwheel.pull_log.log_rows import checkpoint_key
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.registry.registry import Registry
from hourwheel.retention.kinds import PULLS
from hourwheel.retention.watermarks import removable_below
from hourwheel.settling.leases import Leases

_ALL = "\U0010ffff"  # sorts behind every row number


def finish_moves(registry: Registry, subject: Subject) -> None:
    """Carries the open change of the subject's route to its end."""
    finish_change(registry, subject.name)


def find_moves(registry: Registry, subject: Subject, totals: Mapping[str, Counter]) -> None:
    """Brings the route up to date where a log that should take messages is sealed: a move was cut off. ``totals`` are
    those of the parts that can be reached."""
    if any(totals[name].sealed for name in map(subject.log, range(subject.queues)) if name in totals):
        refresh_route(registry, subject)


def expire_parts(registry: Registry, leases: Leases, subject: Subject, totals: Mapping[str, Counter]) -> None:
    """Marks as expired each closed part whose rows have all expired and been removed, and in which no group has a
    lease; then removes the pull logs and checkpoints of the groups on it. ``totals`` are those of the parts that can be
    reached."""
    for queue in range(subject.queues if subject.routes else 0):
        for mapping, name in subject.parts(queue):
            if mapping.end is not None and name in totals and _removed(registry.context, name, totals[name]):
                _expire_part(registry, leases, subject, queue, mapping)


def _expire_part(registry: Registry, leases: Leases, subject: Subject, queue: int, part: routes.Mapping) -> None:
    """Marks a part whose rows are removed as expired, and forgets it for all groups, unless one has a lease there."""
    context, name = registry.context, subject.log_of(queue, part)
    # Strongly consistent: the leases of a group that is missing here would be lost with the part.
    groups = [group for group in registry.groups(subject) if not group.broadcast]
    if all(_left(leases, log) for log in _readers(context, subject, groups, name)):
        expire(registry, subject, queue, part)
        for group in groups:
            _forget(context, group, name)


def _readers(context: Context, subject: Subject, groups: Iterable[Group], source: str) -> list[PullLog]:
    """Returns the pull logs of these groups on one log."""
    return [log for group in groups for log in pull_logs(context, subject, group) if log.source.name == source]


def _removed(context: Context, log: str, totals: Counter) -> bool:
    return totals.sealed and context.log(log).trimmed() >= totals.rows


def _left(leases: Leases, log: PullLog) -> bool:
    """Returns whether the group has no open pull of the part, and its pull rows are archived where that matters."""
    following = leases.idle(log)
    return following is not None and removable_below(log.context, PULLS, log.partition, following) == following


def _forget(context: Context, group: Group, source: str) -> None:
    """Removes the pull log and the checkpoint of the group on this log."""
    store, partition = context.store_of(source), pull_log(group.member, source)
    store.trim(Table.PULL, partition, below=_ALL)
    key = checkpoint_key(partition)
    record = store.get(key)
    if record is not None:
        store.delete(key, expect=record.token)
