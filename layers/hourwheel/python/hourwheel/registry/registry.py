"""Looks subjects and groups up, caches them for a moment, and creates them on first use."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, TypeVar

import msgspec

from hourwheel.context import Context
from hourwheel.errors import UNDECODABLE, ErasureUnfinished, NotFound, Unavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.model.fields import check_name
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Store
from hourwheel.registry.quotas import check_groups, subjects_check
from hourwheel.registry.record_cache import RecordCache
from hourwheel.registry.record_changes import RecordChange
from hourwheel.registry.records import (
    SUBJECT_SORT,
    alive,
    group_record,
    new_group,
    new_subject,
    subject_record,
    unfinished_deletion,
    unknown_group,
    unknown_subject,
)
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.registry.stored_records import (
    ReportUnreadable,
    SubjectRecords,
    first_records,
    groups_behind,
    subjects_named,
    whole_subject,
)
from hourwheel.registry.subject_list import SubjectList

T = TypeVar("T", Subject, Group)

_PAGE = 100  # the largest page of a list


class Erasure(Protocol):
    """Erases the logs and other records of deleted subjects and groups, which the registry does not know.
    Idempotent."""

    def erase_subject(self, context: Context, subject: Subject, groups: Iterable[Group]) -> None: ...
    def erase_group(self, context: Context, subject: Subject, group: Group) -> None: ...


@dataclass
class Registry:
    """The subjects and groups of a deployment. Thread-safe. Caches records for up to ``settings.registry_seconds``."""

    context: Context
    erasure: Erasure
    on_deletion: Callable[[RemovedNames], object] = lambda deleted: None
    """Drops what the process keeps by the names of a deleted subject or group."""
    listed: SubjectList = field(init=False)
    _records: RecordCache = field(init=False)

    def __post_init__(self) -> None:
        self.listed = SubjectList(self.context)
        self._records = RecordCache(self.context)

    def subject(self, name: str, *, create: bool = False) -> Subject:
        """Returns the subject. If there is none, creates it with the defaults (``create``, and ``auto_create`` is set)
        or raises ``NotFound``. Raises ``Unavailable`` where it would create it, and the deletion of the former one is
        not finished: the function that takes messages has no right to delete anything."""
        cached = self._records.get((name,))
        if isinstance(cached, Subject):
            return cached
        began_ms = self.context.clock.now_ms()
        current = subject_record(self.context, name).load()
        if current is None or current.value.deleted:
            if not (create and self.context.settings.auto_create):
                raise unknown_subject(name, creating=create)
            check_name(name, "subject")
            value = self.change_subject(name, lambda subject: subject, finishes_deletion=False)
        else:
            value = current.value
        return self._records.keep((name,), value, began_ms)

    def read_ahead(self, names: Iterable[str]) -> None:
        """Reads the records of these subjects that are not cached, many in a request: ``subject`` then reads none of
        them. It reads those alone that stand behind a record which cannot be decoded."""
        unknown = [name for name in dict.fromkeys(names) if self._records.get((name,)) is None]
        if len(unknown) < 2:
            return
        began_ms = self.context.clock.now_ms()
        with suppress(*UNDECODABLE):
            for subject in subjects_named(self.context.store, unknown):
                if not subject.deleted:
                    self._records.keep((subject.name,), subject, began_ms)

    def group(self, subject: Subject, name: str, *, create: bool = False) -> Group:
        """Returns the group. If there is none, creates it with the defaults (``create``, and ``auto_create`` is set) or
        raises ``NotFound``."""
        cached = self._records.get((subject.name, name))
        if isinstance(cached, Group) and alive(cached, subject):
            return cached
        began_ms = self.context.clock.now_ms()
        current = group_record(self.context, subject.name, name).load()
        if current is not None and current.value.subject_generation > subject.generation:
            raise self._made_again(subject)
        if current is None or not alive(current.value, subject):
            if not (create and self.context.settings.auto_create):
                raise unknown_group(subject.name, name, creating=create)
            check_name(name, "group")
            value = self.change_group(subject, name, lambda group: group)
        else:
            value = current.value
        return self._records.keep((subject.name, name), value, began_ms)

    def subject_and_group(self, name: str, group: str, *, create: bool = False) -> tuple[Subject, Group]:
        """Returns what ``subject`` and ``group`` return. Most often one query where neither is cached."""
        if self._records.get((name,)) is None and self._records.get((name, group)) is None:
            self._read_both(name, group)
        subject = self.subject(name, create=create)
        return subject, self.group(subject, group, create=create)

    def _read_both(self, name: str, group: str) -> None:
        """Caches the subject, and the group if it is one of its first ones. Caches nothing that was deleted."""
        began_ms = self.context.clock.now_ms()
        records = first_records(self.context.store, name)
        subject = subject_record(self.context, name).opened(records.get(SUBJECT_SORT))
        if subject is None or subject.value.deleted:
            return
        self._records.keep((name,), subject.value, began_ms)
        member = group_record(self.context, name, group).opened(records.get(group))
        if member is not None and alive(member.value, subject.value):
            self._records.keep((name, group), member.value, began_ms)

    def known_group(self, subject: Subject, name: str) -> Group | None:
        """Returns the record of a consumer's group as ``group`` does; None if there is none."""
        try:
            return self.group(subject, name)
        except NotFound:
            return None

    def current_subject(self, name: str) -> Subject:
        """Returns the subject as it is now, not as this process cached it, and drops the cached records of its groups.
        Raises ``NotFound``."""
        self.forget(name)
        return self.subject(name)

    def forget(self, subject: str) -> None:
        """Drops the cached records of a subject and its groups."""
        self._records.forget(subject)

    def forget_older(self, subject: str, at_ms: int) -> None:
        """Drops the cached records of a subject and its groups that were read before this time."""
        self._records.forget_older(subject, at_ms)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the cached records of deleted subjects and groups."""
        self._records.drop(deleted)

    def forget_subject(self, name: str) -> None:
        """Drops the cached record of a subject, and keeps those of its groups."""
        self._records.forget_subject(name)

    def change_subject(
        self,
        name: str,
        change: Callable[[Subject], Subject],
        *,
        queues: int = 1,
        finishes_deletion: bool = True,
    ) -> Subject:
        """Creates the subject with ``queues`` queues if there is none, stores what ``change`` makes of it, and returns
        that. Raises ``Conflict`` if the deployment has ``max_subjects``. Finishes the deletion of a former subject
        first if it was cut off; without ``finishes_deletion`` raises ``Unavailable``."""

        def fresh(last: Subject | None) -> Subject:
            # The deletion may not have erased the old subject yet, and messages sent to it from now on would be lost.
            if last is not None and not last.erased:
                if not finishes_deletion:
                    raise unfinished_deletion(name)
                self.erasure.erase_subject(self.context, last, self._of_generation(last))
            return new_subject(self.context, name, last, queues)

        def is_new(current: Subject | None) -> bool:
            return current is None or current.deleted

        def decide(current: Subject | None) -> Subject:
            return change(fresh(current) if current is None or current.deleted else current)

        def list_name(store: Store) -> None:
            self.listed.add(store, name)

        room = subjects_check(self.listed) if self.context.settings.max_subjects else None
        record = subject_record(self.context, name)
        value = RecordChange(self.context, name, record, decide, is_new, room, list_name).stored()
        self.forget(name)
        return value

    def change_group(
        self,
        subject: Subject,
        name: str,
        change: Callable[[Group], Group],
        *,
        start: Literal["earliest", "latest"] = "earliest",
        broadcast: bool = False,
        ordered: bool = False,
    ) -> Group:
        """Creates the group at ``start`` if there is none, with ``broadcast`` as a broadcast group, with ``ordered`` as
        an ordered one, stores what ``change`` makes of it, and returns that. Raises ``Conflict`` if the subject has
        ``max_groups``."""

        def fresh(last: Group | None) -> Group:
            if last is not None and last.subject_generation == subject.generation and not last.erased:
                self.erasure.erase_group(self.context, subject, last)
            return new_group(self.context, subject, name, last, start=start, broadcast=broadcast, ordered=ordered)

        def decide(current: Group | None) -> Group:
            if current is not None and current.subject_generation > subject.generation:
                # A group of the new subject must not be replaced.
                raise self._made_again(subject)
            return change(current if current is not None and alive(current, subject) else fresh(current))

        def is_new(current: Group | None) -> bool:
            return not alive(current, subject)

        room = check_groups(subject) if self.context.settings.max_groups else None
        record = group_record(self.context, subject.name, name)
        value = RecordChange(self.context, name, record, decide, is_new, room).stored()
        self.forget(subject.name)
        return value

    def begin_seek(self, subject: Subject, group: Group) -> int:
        """Writes into the group's record that a seek begins, so that pulls see its rows even if it is cut off. Returns
        the time that names the seek. Raises ``NotFound`` if the group was deleted meanwhile."""
        began_ms = self.context.clock.now_ms()
        self._change_seek(subject, group, lambda current: {"seeking_ms": began_ms})
        return began_ms

    def end_seek(self, subject: Subject, group: Group, began_ms: int) -> None:
        """Counts the seek in the group's record. A seek that began later goes on. Raises ``NotFound`` if the group was
        deleted meanwhile."""

        def change(current: Group) -> dict[str, int]:
            return {
                "seeks": current.seeks + 1,
                "seeking_ms": 0 if current.seeking_ms == began_ms else current.seeking_ms,
            }

        self._change_seek(subject, group, change)

    def _change_seek(self, subject: Subject, group: Group, change: Callable[[Group], dict[str, int]]) -> None:
        def changed(current: Group) -> Group:
            if current.generation != group.generation:
                raise unknown_group(subject.name, group.name)
            return msgspec.structs.replace(current, **change(current))

        self.change_group(subject, group.name, changed)

    def delete_subject(self, name: str) -> list[str]:
        """Removes the subject, its groups and messages, or finishes a deletion that was cut off. Returns the cells that
        cannot be reached: the sweeper erases what they hold. Raises ``NotFound``."""
        current = subject_record(self.context, name).load()
        if current is None or current.value.erased:
            raise unknown_subject(name)
        tombstone = msgspec.structs.replace(current.value, deleted=True)
        if not current.value.deleted and not subject_record(self.context, name).swap(current, tombstone).stored:
            raise Unavailable("the subject was changed meanwhile: send the request again")
        # After the tombstone: no process that reads the record from here on adds messages or groups.
        self.forget(name)
        unfinished = _unfinished(partial(self.erase_subject, tombstone))
        deleted = RemovedNames()
        deleted.add_subject(tombstone)
        self.on_deletion(deleted)
        return unfinished

    def delete_group(self, subject: Subject, name: str) -> list[str]:
        """Removes the group, its progress, retries and dead letters, or finishes a deletion that was cut off. Returns
        the cells that cannot be reached: the sweeper erases what they hold. Raises ``NotFound``."""
        record = group_record(self.context, subject.name, name)
        current = record.load()
        if current is None or current.value.subject_generation != subject.generation or current.value.erased:
            raise unknown_group(subject.name, name)
        # The record stays as a tombstone: its generation must not come back, or old receipts would fit the new group.
        tombstone = msgspec.structs.replace(current.value, deleted=True)
        if not current.value.deleted and not record.swap(current, tombstone).stored:
            raise Unavailable("the group was changed meanwhile: send the request again")
        self.forget(subject.name)
        unfinished = _unfinished(partial(self.erase_group, subject, tombstone))
        deleted = RemovedNames()
        deleted.add_group(tombstone)
        self.on_deletion(deleted)
        return unfinished

    def erase_subject(self, tombstone: Subject) -> None:
        """Erases the logs of a deleted subject and its groups, unless that is done, and notes it in the list."""
        if not tombstone.erased:
            self.erasure.erase_subject(self.context, tombstone, self._of_generation(tombstone))
        # Before the record is written: a creation that has changed the entry before, and not stored its record yet,
        # finds another record then, and changes the entry again.
        tokens = self.listed.tokens(tombstone.name)
        if self._erased(subject_record(self.context, tombstone.name), tombstone):
            self.listed.mark_erased(tokens, tombstone.generation)

    def erase_group(self, subject: Subject, tombstone: Group) -> None:
        """Erases the logs of a deleted group, unless that is done."""
        if not tombstone.erased:
            self.erasure.erase_group(self.context, subject, tombstone)
            self._erased(group_record(self.context, subject.name, tombstone.name), tombstone)

    def subjects(self, after: str = "", limit: int = _PAGE, *, prefix: str = "") -> tuple[list[Subject], str | None]:
        """Returns up to ``limit`` subjects behind the name ``after`` whose names begin with ``prefix``, and the
        ``after`` of the next page (None: there is none)."""
        return _page(self.all_subjects(after, prefix=prefix), limit)

    def group_page(self, subject: Subject, after: str = "", limit: int = _PAGE) -> tuple[list[Group], str | None]:
        """Returns up to ``limit`` groups of the subject behind the name ``after``, and the ``after`` of the next page
        (None: there is none)."""
        return _page((group for group in self.all_groups(subject, after) if not group.consumer), limit)

    def groups(self, subject: Subject) -> list[Group]:
        """Returns all groups of the subject, by name."""
        return [group for group in self.all_groups(subject) if not group.deleted]

    def groups_with_queues(self, name: str) -> list[Group]:
        """Returns the groups of the subject that may have a wake-up queue: none, without a read, where no group has
        one."""
        current = None if self.context.wakeup_queues is None else subject_record(self.context, name).load()
        return [] if current is None else self.groups(current.value)

    def all_subjects(self, after: str = "", *, prefix: str = "") -> Iterator[Subject]:
        """Yields the subjects behind the name ``after`` whose names begin with ``prefix``, by name, with the tombstones
        of those that are not erased."""
        names = (entry.name for entry in self.listed.entries(after, prefix=prefix) if not entry.erased)
        return subjects_named(self.context.store, names)

    def all_groups(self, subject: Subject, after: str = "", *, consistent: bool = True) -> Iterator[Group]:
        """Yields the groups and tombstones of the subject behind the name ``after``, by name."""
        groups = groups_behind(self.context.store, subject.name, after, consistent=consistent)
        return (group for group in groups if group.subject_generation == subject.generation)

    def whole_subject(
        self, name: str, *, consistent: bool = True, unreadable: ReportUnreadable | None = None
    ) -> SubjectRecords | None:
        """Returns the subject or tombstone with its groups and their tombstones, by name; None if it has no record, or
        one that cannot be decoded. One query. Passes records that cannot be decoded to ``unreadable``; without it the
        first one is raised."""
        records = whole_subject(self.context.store, name, consistent=consistent, unreadable=unreadable)
        if records is None:
            return None
        generation = records.subject.generation
        return records._replace(groups=[group for group in records.groups if group.subject_generation == generation])

    def _of_generation(self, subject: Subject) -> Iterator[Group]:
        """Yields the groups of a deleted subject that are not erased."""
        return (group for group in self.all_groups(subject) if not group.erased)

    def _erased(self, record: CasRecord[T], tombstone: T) -> bool:
        """Notes that the logs of the tombstone are erased; returns whether this call did."""
        current = record.load()
        # Another value: the record was created again meanwhile, or another caller has finished the erasure.
        if current is None or current.value != tombstone:
            return False
        return record.swap(current, msgspec.structs.replace(tombstone, erased=True)).stored

    def _made_again(self, subject: Subject) -> Unavailable:
        """Forgets a cached subject that was deleted and created again; returns the error for the caller."""
        self.forget(subject.name)
        return Unavailable(f"subject {subject.name!r} was created again meanwhile: send the request again")


def _page(records: Iterator[T], limit: int) -> tuple[list[T], str | None]:
    page: list[T] = []
    for record in records:
        if not record.deleted:
            if len(page) == limit:
                return page, page[-1].name
            page.append(record)
    return page, None


def _unfinished(erase: Callable[[], None]) -> list[str]:
    """Erases, and returns the cells in which the sweeper has to finish that."""
    try:
        erase()
    except ErasureUnfinished as error:
        return error.unfinished
    return []
