"""Subjects and groups, as the hot paths look them up: cached for a moment, made on first use.

    table      meta
    partition  subjects          groups/{subject}
    sort       {subject}         {group}
    value      Subject, msgpack  Group, msgpack

A deleted record stays as a tombstone: it keeps the generation from which the next one counts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import msgspec

from hourwheel.context import Context
from hourwheel.errors import NotFound, Unavailable
from hourwheel.logs.item import Held, Slot
from hourwheel.model import DEFAULT_MAX_ATTEMPTS, DEFAULT_RETENTION_SECONDS, Group, Subject, check_name
from hourwheel.ports import Key, Table

T = TypeVar("T", Subject, Group)

_PAGE = 100


def unknown_subject(name: str) -> NotFound:
    return NotFound("subject-unknown", f"there is no subject {name!r}: create it, or send to it", field="subject")


def unknown_group(subject: str, name: str) -> NotFound:
    return NotFound(
        "group-unknown", f"subject {subject!r} has no group {name!r}: create it, or pull as it", field="group"
    )


def subject_slot(context: Context, name: str) -> Slot[Subject]:
    return Slot(context.store, context.ids, Key(Table.META, "subjects", name), Subject)


def group_slot(context: Context, subject: str, name: str) -> Slot[Group]:
    return Slot(context.store, context.ids, Key(Table.META, f"groups/{subject}", name), Group)


def alive(group: Group | None, subject: Subject) -> bool:
    return group is not None and not group.deleted and group.subject_generation == subject.generation


@dataclass
class Directory:
    """Looks subjects and groups up. Thread-safe; holds copies up to ``settings.directory_seconds`` old."""

    context: Context
    _seen: dict[tuple[str, ...], tuple[int, Subject | Group]] = field(default_factory=dict)

    def subject(self, name: str, *, create: bool = False) -> Subject:
        """The subject; raises ``NotFound``, or makes it with the defaults."""
        cached = self._cached((name,))
        if isinstance(cached, Subject):
            return cached
        held = subject_slot(self.context, name).load()
        if held is None or held.value.deleted:
            if not create:
                raise unknown_subject(name)
            check_name(name, "subject")
            value = self.change_subject(name, lambda subject: subject)
        else:
            value = held.value
        return self._keep((name,), value)

    def group(self, subject: Subject, name: str, *, create: bool = False) -> Group:
        """The group; raises ``NotFound``, or makes it with the defaults."""
        cached = self._cached((subject.name, name))
        if isinstance(cached, Group) and alive(cached, subject):
            return cached
        held = group_slot(self.context, subject.name, name).load()
        if held is None or not alive(held.value, subject):
            if not create:
                raise unknown_group(subject.name, name)
            check_name(name, "group")
            value = self.change_group(subject, name, lambda group: group)
        else:
            value = held.value
        return self._keep((subject.name, name), value)

    def forget(self, subject: str) -> None:
        """Drops what is cached of a subject and its groups."""
        for path in [path for path in list(self._seen) if path[0] == subject]:
            self._seen.pop(path, None)

    def change_subject(self, name: str, change: Callable[[Subject], Subject]) -> Subject:
        """Makes the subject if there is none, then stores ``change`` of it."""

        def fresh(last: Subject | None) -> Subject:
            # Whoever deletes it may not have come to this yet: what is sent to the old one from now on would be lost.
            for log in [last.log(queue) for queue in range(last.queues)] if last else []:
                self.context.log(log).seal()
            return Subject(
                name=name,
                generation=last.generation + 1 if last else 1,
                queues=1,
                retention_seconds=DEFAULT_RETENTION_SECONDS,
                created_ms=self.context.clock.now_ms(),
            )

        def decide(held: Subject | None) -> Subject:
            return change(fresh(held) if held is None or held.deleted else held)

        value = self._change(subject_slot(self.context, name), decide)
        self.forget(name)
        return value

    def change_group(
        self,
        subject: Subject,
        name: str,
        change: Callable[[Group], Group],
        *,
        start: Literal["earliest", "latest"] = "earliest",
    ) -> Group:
        """Makes the group if there is none, beginning at ``start``, then stores ``change`` of it."""

        def fresh(last: Group | None) -> Group:
            logs = [self.context.log(subject.log(queue)) for queue in range(subject.queues)]
            return Group(
                subject=subject.name,
                subject_generation=subject.generation,
                name=name,
                generation=last.generation + 1 if last else 1,
                start=start,
                max_attempts=DEFAULT_MAX_ATTEMPTS,
                created_ms=self.context.clock.now_ms(),
                origins=tuple(log.totals().rows for log in logs) if start == "latest" else (),
            )

        def decide(held: Group | None) -> Group:
            if held is not None and held.subject_generation > subject.generation:
                # Ours is the old subject, from the cache: a group of the new one must not be replaced.
                self.forget(subject.name)
                raise Unavailable(f"subject {subject.name!r} was made again meanwhile: send the request again")
            return change(held if held is not None and alive(held, subject) else fresh(held))

        value = self._change(group_slot(self.context, subject.name, name), decide)
        self.forget(subject.name)
        return value

    def subjects(self, after: str = "", limit: int = _PAGE) -> tuple[list[Subject], str | None]:
        """Up to ``limit`` subjects behind the name ``after``, and the name to go on from (None: no more)."""
        found: list[Subject] = []
        start = after + "\x00" if after else ""
        while True:
            items = self.context.store.scan(Table.META, "subjects", start=start, limit=_PAGE)
            for name, record in items:
                value = msgspec.msgpack.decode(record.value, type=Subject)
                if not value.deleted:
                    if len(found) == limit:
                        return found, found[-1].name
                    found.append(value)
                start = name + "\x00"
            if len(items) < _PAGE:
                return found, None

    def groups(self, subject: Subject) -> list[Group]:
        """All groups of the subject, by name."""
        found: list[Group] = []
        start = ""
        while True:
            items = self.context.store.scan(Table.META, f"groups/{subject.name}", start=start, limit=_PAGE)
            values = [msgspec.msgpack.decode(record.value, type=Group) for _, record in items]
            found += [value for value in values if alive(value, subject)]
            if len(items) < _PAGE:
                return found
            start = items[-1][0] + "\x00"

    def _change(self, slot: Slot[T], decide: Callable[[T | None], T]) -> T:
        held = slot.load()
        for _ in range(10):
            value = decide(None if held is None else held.value)
            if held is not None and value == held.value:
                return value
            outcome = slot.swap(None if held is None else held.token, value)
            if outcome.stored:
                return value
            held = outcome.held
        raise Unavailable(f"{slot.key.sort!r} is being changed by many at once: send the request again")

    def _cached(self, path: tuple[str, ...]) -> Subject | Group | None:
        seen = self._seen.get(path)
        if seen is None:
            return None
        age_ms = self.context.clock.now_ms() - seen[0]
        # A clock set back makes entries look young: they are dropped as well.
        return seen[1] if 0 <= age_ms < self.context.settings.directory_seconds * 1_000 else None

    def _keep(self, path: tuple[str, ...], value: T) -> T:
        self._seen[path] = (self.context.clock.now_ms(), value)
        return value


__all__ = ["Directory", "Held", "alive", "group_slot", "subject_slot", "unknown_group", "unknown_subject"]
