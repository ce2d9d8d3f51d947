"""Reads subjects and groups from the snapshots of the registry in the archive, the newest one first."""

from collections.abc import Iterator
from typing import NamedTuple

from hourwheel.archive.blocks import RegistrySnapshot
from hourwheel.archive.reading import registry_snapshots
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.open_logs import group_parts
from hourwheel.registry.broadcast import with_settings
from hourwheel.retention.kinds import REGISTRY
from hourwheel_pipeline.archive_rows.reading import newest_first


class Readers(NamedTuple):
    """A group, or one consumer of a broadcast group, and the row at which it begins in the log of a message."""

    group: Group
    origin: int


def readers_of(archive: Blobs, last_manifest: int, subject: str, generation: int, log: str) -> list[Readers]:
    """Returns the groups that read the log, by name, from the newest snapshot with this generation of the subject.
    Leaves out groups that were deleted before their subject."""
    newest: list[Group] | None = None
    origins: dict[str, int] = {}
    wanted = (subject, generation)
    for snapshot in _snapshots(archive, last_manifest):
        owner = next((owner for owner in snapshot.subjects if (owner.name, owner.generation) == wanted), None)
        if owner is None:
            continue
        groups = [group for group in snapshot.groups if (group.subject, group.subject_generation) == wanted]
        if newest is None:
            newest = [group for group in groups if owner.deleted or not group.deleted]
        origins = {group.member: origin for group in groups for origin in _origins(owner, group, log)}
        if origins or not groups:
            break  # an older snapshot is read only for a log that the queue no longer has
    return [Readers(group, origins.get(group.member, 0)) for group in _by_name(newest or [])]


def _by_name(groups: list[Group]) -> Iterator[Group]:
    """Yields the groups by name. In place of a broadcast group it yields the groups of its consumers, with the settings
    of the broadcast group."""
    for parent in sorted((group for group in groups if not group.consumer), key=lambda group: group.name):
        if not parent.broadcast:
            yield parent
            continue
        prefix = f"{parent.name}+{parent.generation}+"
        consumers = [group for group in groups if group.name.startswith(prefix)]
        yield from (with_settings(group, parent) for group in sorted(consumers, key=lambda group: group.name))


def _origins(subject: Subject, group: Group, log: str) -> list[int]:
    return [
        origin
        for queue in range(subject.queues)
        for _, name, origin in group_parts(subject, group, queue)
        if name == log
    ]


def _snapshots(archive: Blobs, last_manifest: int) -> Iterator[RegistrySnapshot]:
    for work in newest_first(archive, last_manifest, REGISTRY):
        yield from registry_snapshots(archive, work)
