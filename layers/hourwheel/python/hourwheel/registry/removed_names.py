"""Tells which names in the memory of a process belong to deleted subjects and groups.

A process keeps records, leases, ends and states by the names of subjects, groups and logs. ``Deployment.drop`` drops
them all. A deletion drops the entries of its names at once. Each sweep does so for all tombstones: another process may
have deleted the subject or group, and a call under way may have kept an entry once more.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject

K = TypeVar("K")


class _Owner(NamedTuple):
    """The subject of a log, and the group to whom its records belong. ``group`` is empty for the messages of a queue,
    and ``subject`` for a log of no subject, such as a schedule log."""

    subject: str
    subject_generation: int
    group: str
    generation: int


@dataclass(frozen=True)
class RemovedNames:
    """The names of deleted subjects and groups. Names of logs contain generations, so a new subject or group of an old
    name keeps its entries."""

    _subjects: dict[str, int] = field(default_factory=dict)
    """The subjects, each with the last generation that is deleted."""
    _groups: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """The groups by subject, its generation, and name, each with the last generation that is deleted."""
    _subjects_now: set[str] = field(default_factory=set)
    _groups_now: set[tuple[str, str]] = field(default_factory=set)

    def add_subject(self, subject: Subject) -> None:
        """Adds all generations of the subject that are deleted, as its record tells."""
        self._subjects[subject.name] = subject.generation - (not subject.deleted)
        if subject.deleted:
            self._subjects_now.add(subject.name)

    def add_erased(self, name: str, generation: int) -> None:
        """Adds the generations of an erased subject up to this one."""
        self._subjects[name] = generation
        self._subjects_now.add(name)

    def add_group(self, group: Group) -> None:
        """Adds all generations of the group that are deleted, as its record tells."""
        path = (group.subject, group.subject_generation, group.name)
        self._groups[path] = group.generation - (not group.deleted)
        if group.deleted:
            self._groups_now.add((group.subject, group.name))

    def has_subject(self, name: str) -> bool:
        """Returns whether there is no subject of this name any more."""
        return name in self._subjects_now

    def has(self, path: tuple[str, ...]) -> bool:
        """Returns whether there is no subject (``path`` has its name) or group (subject, name) of this name."""
        return self.has_subject(path[0]) or path in self._groups_now

    def has_group(self, subject: str, name: str) -> bool:
        """Returns whether there is no group of this name any more."""
        return subject in self._subjects_now or (subject, name) in self._groups_now

    def has_log(self, log: str) -> bool:
        """Returns whether the log or pull log is that of a deleted subject or group."""
        owner = _owner(log)
        if owner.subject_generation <= self._subjects.get(owner.subject, 0):
            return bool(owner.subject)
        return 0 < owner.generation <= self._groups.get((owner.subject, owner.subject_generation, owner.group), 0)


def drop_logs(deleted: RemovedNames, *tables: MutableMapping[str, Any]) -> None:
    """Drops the entries of deleted subjects and groups from tables by the names of logs."""
    for table in tables:
        drop_keys(table, [log for log in list(table) if deleted.has_log(log)])


def drop_keys(table: MutableMapping[K, Any], keys: Iterable[K]) -> None:
    """Drops entries that other threads may drop at the same time."""
    for key in keys:
        table.pop(key, None)


def _owner(log: str) -> _Owner:
    """Returns the owner of a log or pull log. Does not parse the whole name: a sweep calls this for each entry."""
    member, _, source = log.rpartition("@")
    subject, _, rest = source.rpartition(":")[2].partition("/")
    if rest.startswith(("retry/", "dead/")):
        member = rest.partition("/")[2]
    return _Owner(*_numbered(subject), *_numbered(member))


def _numbered(name: str) -> tuple[str, int]:
    text, separator, generation = name.rpartition("~")
    return (text, int(generation)) if separator else ("", 0)
