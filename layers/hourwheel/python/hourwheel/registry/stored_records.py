"""Reads the stored records of many subjects and groups at once."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from hourwheel.errors import UNDECODABLE
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Record, Store, Table, items_of
from hourwheel.registry.records import FIRST_GROUP, SUBJECT_SORT, partition_of, subject_key

T = TypeVar("T", Subject, Group)

ReportUnreadable: TypeAlias = Callable[[str, Exception], None]
"""Receives the words for a record that cannot be decoded, such as "subject orders", and the error."""

_PAGE = 100

_FIRST_RECORDS = 8  # below 4 KB, so that they cost as much as one record

_RECORDS_AT_ONCE = 51
"""Two reads of this many records are enough for a page of 100, and to see whether there is another."""


class SubjectRecords(NamedTuple):
    """A subject and the records of its groups, tombstones and those of former generations included, by name."""

    subject: Subject
    groups: list[Group]


def subjects_named(store: Store, names: Iterable[str]) -> Iterator[Subject]:
    """Yields the subjects and tombstones of these names that have a record, in their order."""
    left = iter(names)
    while some := list(islice(left, _RECORDS_AT_ONCE)):
        keys = {name: subject_key(name) for name in some}
        records = store.get_keys(list(keys.values()))
        # A name without a record: its process stopped before it stored the record, or is about to.
        yield from (_opened(records[key], Subject) for key in keys.values() if key in records)


def groups_behind(store: Store, subject: str, after: str = "", *, consistent: bool = True) -> Iterator[Group]:
    """Yields the records of the groups of a subject behind the name ``after``, by name."""
    start = after + "\x00" if after else FIRST_GROUP
    stored = items_of(store, Table.META, partition_of(subject), start=start, page=_PAGE, consistent=consistent)
    return (_opened(record, Group) for _, record in stored)


def whole_subject(
    store: Store, name: str, *, consistent: bool = True, unreadable: ReportUnreadable | None = None
) -> SubjectRecords | None:
    """Returns a subject with its groups; None if it has no record, or one that cannot be decoded. One query. Passes
    records that cannot be decoded to ``unreadable``; without it the first one is raised."""
    subject: Subject | None = None
    groups: list[Group] = []
    for sort, record in items_of(store, Table.META, partition_of(name), page=_PAGE, consistent=consistent):
        words = f"subject {name}" if sort == SUBJECT_SORT else f"group {sort} of {name}"
        try:
            if sort == SUBJECT_SORT:
                subject = _opened(record, Subject)
            else:
                groups.append(_opened(record, Group))
        except UNDECODABLE as error:
            if unreadable is None:
                raise
            unreadable(words, error)
    return None if subject is None else SubjectRecords(subject, groups)


def first_records(store: Store, name: str) -> dict[str, Record]:
    """Returns the record of a subject and those of its first groups, by their sort keys. One query, for the price of
    one record."""
    return dict(store.scan(Table.META, partition_of(name), limit=_FIRST_RECORDS))


def _opened(record: Record, kind: type[T]) -> T:
    return msgspec.msgpack.decode(record.value, type=kind)
