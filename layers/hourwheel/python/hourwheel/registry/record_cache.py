"""Keeps the records of subjects and groups for a moment, so that not each request reads them."""

from dataclasses import dataclass, field
from typing import TypeVar

from hourwheel.context import Context
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.registry.removed_names import RemovedNames

T = TypeVar("T", Subject, Group)


@dataclass
class RecordCache:
    """The records that this process has read within ``settings.registry_seconds``: subjects by (name,), groups by
    (subject, name). Thread-safe."""

    context: Context
    _seen: dict[tuple[str, ...], tuple[int, Subject | Group]] = field(default_factory=dict)

    def get(self, path: tuple[str, ...]) -> Subject | Group | None:
        """Returns the record if it is young enough."""
        seen = self._seen.get(path)
        if seen is None:
            return None
        age_ms = self.context.clock.now_ms() - seen[0]
        # Entries from the future are dropped too: the clock was set back since.
        return seen[1] if 0 <= age_ms < self.context.settings.registry_seconds * 1_000 else None

    def keep(self, path: tuple[str, ...], value: T, at_ms: int) -> T:
        """Caches the record and returns it. ``at_ms`` is a time before it was read: a copy must not count as younger
        than its content, because dozing groups rely on its age. A record that has not changed stays the same
        object: what others keep for it, such as ``GroupLogs``, need not be made again."""
        seen = self._seen.get(path)
        if seen is not None and seen[1] == value:
            value = seen[1]
        self._seen[path] = (at_ms, value)
        return value

    def forget(self, subject: str) -> None:
        """Drops the records of a subject and its groups."""
        self._drop([path for path in list(self._seen) if path[0] == subject])

    def forget_older(self, subject: str, at_ms: int) -> None:
        """Drops the records of a subject and its groups that were read before this time."""
        self._drop([path for path, (read_ms, _) in list(self._seen.items()) if path[0] == subject and read_ms < at_ms])

    def forget_subject(self, name: str) -> None:
        """Drops the record of a subject, and keeps those of its groups."""
        self._drop([(name,)])

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the records of deleted subjects and groups."""
        self._drop([path for path in list(self._seen) if deleted.has(path)])

    def _drop(self, paths: list[tuple[str, ...]]) -> None:
        for path in paths:
            self._seen.pop(path, None)
