"""How many subjects, and groups of a subject, there may be.

They are counted when one more is to be made, in the transaction that makes it where the store has transactions: then
the limits are exact. Elsewhere requests that make one at the same moment may all find room: there may be as many more
as requests ran at once.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from hourwheel.context import Settings
from hourwheel.errors import Conflict
from hourwheel.model import Group, Subject
from hourwheel.ports import Store, Table, items_of

Room: TypeAlias = Callable[[Store, Settings], None]
"""Raises ``Conflict`` where there is no room for one more."""


def check_subjects(store: Store, settings: Settings) -> None:
    records = items_of(store, Table.META, "subjects")
    subjects = (msgspec.msgpack.decode(record.value, type=Subject) for _, record in records)
    if _reached((1 for subject in subjects if not subject.deleted), settings.max_subjects):
        raise Conflict(
            "too-many-subjects",
            f"there are {settings.max_subjects} subjects, and no more may be made: delete one, or have the limit "
            "raised",
            field="subject",
        )


def check_groups(subject: Subject) -> Room:
    """Of this subject."""

    def check(store: Store, settings: Settings) -> None:
        records = items_of(store, Table.META, f"groups/{subject.name}")
        groups = (msgspec.msgpack.decode(record.value, type=Group) for _, record in records)
        mine = (1 for group in groups if not group.deleted and group.subject_generation == subject.generation)
        if _reached(mine, settings.max_groups):
            raise Conflict(
                "too-many-groups",
                f"subject {subject.name!r} has {settings.max_groups} groups, and no more may be made: delete one, or "
                "have the limit raised",
                field="group",
            )

    return check


def _reached(found: Iterator[int], limit: int) -> bool:
    """Looks at no more than it must."""
    return sum(islice(found, limit)) == limit
