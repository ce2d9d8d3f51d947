"""Deletes subjects and groups, with the queues at which their consumers wait."""

from contextlib import suppress

from hourwheel.dozing.dozing import forget_groups, remove_queues
from hourwheel.errors import NotFound
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.registry.broadcast import delete_consumer_groups
from hourwheel.registry.records import group_record
from hourwheel.registry.registry import Registry


def delete_subject(registry: Registry, name: str) -> list[str]:
    """Deletes the subject, its groups and messages. Returns the cells in which the sweeper does this once they can be
    reached. Messages that are sent meanwhile go to a new subject of that name. Raises ``NotFound``."""
    # Before the deletion: afterwards a new subject may have this name.
    groups = registry.groups_with_queues(name)
    unfinished = registry.delete_subject(name)
    remove_queues(registry.context, groups)
    return unfinished


def delete_group(registry: Registry, subject: Subject, name: str) -> list[str]:
    """Deletes the group, and those of its consumers if it is a broadcast group. Returns the cells in which the sweeper
    does this once they can be reached. Raises ``NotFound``."""
    current = group_record(registry.context, subject.name, name).load()
    unfinished = registry.delete_group(subject, name)
    if current is not None:
        forget_groups(registry, subject, [current.value])
    if current is not None and current.value.broadcast:
        # After the group, so that no consumer comes back. The sweeper deletes those that are left.
        consumers, others = delete_consumer_groups(registry, subject, current.value)
        forget_groups(registry, subject, consumers)
        unfinished = sorted({*unfinished, *others})
    return unfinished


def delete_consumer(registry: Registry, subject: Subject, group: Group) -> None:
    """Deletes the group of one consumer of a broadcast group. Idempotent."""
    with suppress(NotFound):  # another call, or the sweeper, has erased it
        registry.delete_group(subject, group.name)
    forget_groups(registry, subject, [group])
