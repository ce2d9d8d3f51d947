"""Gives each consumer of a broadcast group a group of its own below it, so that each consumer gets every message.

    table      meta
    partition  subject/{subject}
    sort       {group}+{generation}+{consumer}      directly behind its broadcast group in the order of names
    value      Group, msgpack                       its progress alone; all settings are those of the broadcast group

A consumer's group is created by its first pull. ``seen_ms`` in its record says when it pulled last, to within
``seen_every_ms``. The sweeper deletes the group of a consumer that was away for too long and has no open lease, and one
whose broadcast group was deleted.
"""

from collections.abc import Iterable, Iterator
from itertools import takewhile

import msgspec

from hourwheel.errors import Conflict, NotFound, Rejected
from hourwheel.model.fields import MAX_BROADCAST_CONSUMERS
from hourwheel.model.groups import Group, PushTarget
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Table, items_of
from hourwheel.registry.records import alive, group_record, partition_of
from hourwheel.registry.registry import Registry

_SEEN_MS = 3_600_000
"""A consumer's record is written at most this often while it pulls: 720 writes a month."""

_PAGE = 100


def consumer_group_name(group: Group, consumer: str) -> str:
    """Returns the name of the consumer's group below a broadcast group. No name in a request contains a plus sign, and
    no later broadcast group of that name takes over a consumer's group."""
    return f"{group.name}+{group.generation}+{consumer}"


def seen_every_ms(group: Group) -> int:
    """Returns how far ``seen_ms`` of a consumer may be behind while it pulls."""
    return min(_SEEN_MS, group.consumer_expires_seconds * 1_000 // 4)


def away(group: Group, now_ms: int) -> bool:
    """Returns whether the consumer of this group pulled last before the time that its broadcast group sets."""
    return now_ms - group.seen_ms > group.consumer_expires_seconds * 1_000 + seen_every_ms(group)


def with_settings(group: Group, parent: Group) -> Group:
    """Returns the group of a consumer with the settings of its broadcast group."""
    return msgspec.structs.replace(
        parent,
        name=group.name,
        generation=group.generation,
        start=group.start,
        created_ms=group.created_ms,
        origins=group.origins,
        origin_epoch=group.origin_epoch,
        origin_logs=group.origin_logs,
        # Either kind of seek changes the sum, and so ends what processes remember of the logs.
        seeks=group.seeks + parent.seeks,
        seeking_ms=group.seeking_ms,
        broadcast=False,
        consumer=group.consumer,
        seen_ms=group.seen_ms,
        deleted=group.deleted,
        erased=group.erased,
    )


def with_all_settings(groups: Iterable[Group]) -> Iterator[Group]:
    """Yields the groups, which have to come in the order of their names. The groups of consumers get the settings of
    their broadcast group; one whose broadcast group is missing has ``consumer_expires_seconds`` 0."""
    parent: Group | None = None
    for group in groups:
        if group.broadcast and not group.deleted:
            parent = group
        inherits = (
            not group.deleted
            and parent is not None
            and group.consumer
            and group.name.startswith(consumer_group_name(parent, ""))
        )
        yield with_settings(group, parent) if inherits and parent is not None else group


def check_pulled(group: Group, target: PushTarget | None) -> None:
    """Raises ``Rejected`` for a target of a broadcast group, whose consumers pull."""
    if group.broadcast and target is not None:
        raise Rejected("field-invalid", "a group with broadcast has no target: its consumers pull", field="push")


def consumer_group(registry: Registry, subject: Subject, parent: Group, consumer: str, *, create: bool) -> Group:
    """Returns the group of a consumer of a broadcast group, and records that the consumer is there. With ``create``
    makes one that is missing; without it raises ``NotFound``. Raises ``Conflict`` if the broadcast group has as many
    consumers as it may."""
    name = consumer_group_name(parent, consumer)
    record = registry.known_group(subject, name)
    now_ms = registry.context.clock.now_ms()
    # abs: after a clock was set back, a pull of the future would keep the consumer until then.
    if record is None or abs(now_ms - record.seen_ms) >= seen_every_ms(parent):
        if record is None and not create:
            raise _unknown_consumer(parent, consumer)
        if record is None:
            _check_room(registry, subject, parent)

        def seen(group: Group) -> Group:
            # A new group: the cached record is that of a consumer which another process has forgotten.
            if not group.consumer and not create:
                raise _unknown_consumer(parent, consumer)
            return msgspec.structs.replace(group, consumer=consumer, seen_ms=now_ms)

        record = registry.change_group(subject, name, seen, start=parent.start)
    return with_settings(record, parent)


def _unknown_consumer(parent: Group, consumer: str) -> NotFound:
    detail = f"group {parent.name!r} has no consumer {consumer!r}: a pull that may create it does so"
    return NotFound("consumer-unknown", detail, field="consumer")


def group_of_receipt(registry: Registry, subject: Subject, group: Group, name: str, generation: int) -> Group | None:
    """Returns the group that a receipt names: the group itself, or that of a consumer. None if it was deleted."""
    if not group.broadcast:
        return group if (group.name, group.generation) == (name, generation) else None
    record = registry.known_group(subject, name)
    # The receipt is newer than the cached record.
    if record is not None and record.generation < generation:
        registry.forget(subject.name)
        record = registry.known_group(subject, name)
    below = record is not None and record.generation == generation
    below = below and name.startswith(consumer_group_name(group, ""))
    return with_settings(record, group) if below and record is not None else None


def consumer_groups(registry: Registry, subject: Subject, parent: Group) -> list[Group]:
    """Returns the groups of all consumers of a broadcast group, by the names of the consumers."""
    records = (group for group in _below(registry, subject, parent) if alive(group, subject))
    return [with_settings(group, parent) for group in records]


def delete_consumer_groups(registry: Registry, subject: Subject, parent: Group) -> tuple[list[Group], list[str]]:
    """Deletes the groups of all consumers of a broadcast group. Returns them, and the cells that cannot be reached.
    Idempotent."""
    groups = [
        group
        for group in _below(registry, subject, parent)
        if group.subject_generation == subject.generation and not group.erased
    ]
    unfinished = {name for group in groups for name in registry.delete_group(subject, group.name)}
    return groups, sorted(unfinished)


def is_orphan(registry: Registry, group: Group) -> bool:
    """Returns whether a deleted broadcast group still has a group of a consumer. One read, strongly consistent."""
    name, generation, _ = group.name.split("+", 2)
    current = group_record(registry.context, group.subject, name).load()
    return current is None or current.value.deleted or current.value.generation != int(generation)


def _below(registry: Registry, subject: Subject, parent: Group) -> list[Group]:
    prefix = consumer_group_name(parent, "")
    items = items_of(registry.context.store, Table.META, partition_of(subject.name), start=prefix, page=_PAGE)
    # Names of consumers' groups follow one another in the order of names.
    inside = takewhile(lambda item: item[0].startswith(prefix), items)
    return [msgspec.msgpack.decode(record.value, type=Group) for _, record in inside]


def _check_room(registry: Registry, subject: Subject, parent: Group) -> None:
    # Not exact for consumers that come at the same moment, as with other quotas.
    if sum(alive(group, subject) for group in _below(registry, subject, parent)) >= MAX_BROADCAST_CONSUMERS:
        raise Conflict(
            "too-many-consumers",
            f"group {parent.name!r} broadcasts to {MAX_BROADCAST_CONSUMERS} consumers, and to no more: give consumers "
            "names that stay the same when they start again, or lower consumer_expires_seconds",
            field="consumer",
        )
