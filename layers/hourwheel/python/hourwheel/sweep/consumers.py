"""Deletes the groups of consumers that were away for too long, or whose broadcast group was deleted."""

import msgspec

from hourwheel.context import Context
from hourwheel.groups.deletions import delete_consumer
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.registry.broadcast import away, is_orphan
from hourwheel.registry.records import alive, group_record
from hourwheel.registry.registry import Registry
from hourwheel.settling.leases import Leases


def forget_if_away(context: Context, registry: Registry, leases: Leases, subject: Subject, group: Group) -> bool:
    """Deletes the group of a consumer that was away for too long and has no open lease, and one that is left of a
    deleted broadcast group. Returns whether the group is deleted. Reads nothing while the consumer pulls."""
    if not group.consumer_expires_seconds:
        return is_orphan(registry, group) and _delete(registry, subject, group)
    if not away(group, context.clock.now_ms()):
        return False
    if any(leases.in_flight(log) for log in pull_logs(context, subject, group)):
        return False
    return _delete_unseen(context, registry, subject, group)


def _delete_unseen(context: Context, registry: Registry, subject: Subject, group: Group) -> bool:
    """Deletes the consumer's group unless it has pulled since it was judged."""
    record = group_record(context, subject.name, group.name)
    current = record.load()
    if current is None or not alive(current.value, subject) or current.value.seen_ms != group.seen_ms:
        return False
    # Conditional: a pull at this moment records that the consumer is back, and one of the two writes wins.
    outcome = record.swap(current, msgspec.structs.replace(current.value, deleted=True))
    return outcome.stored and _delete(registry, subject, group)


def _delete(registry: Registry, subject: Subject, group: Group) -> bool:
    delete_consumer(registry, subject, group)
    return True
