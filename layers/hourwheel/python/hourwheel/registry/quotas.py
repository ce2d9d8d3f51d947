"""Limits the number of subjects, and of the groups of a subject.

The registry counts them before it creates one more, in the same transaction where the store has transactions: there the
limits are exact. In other stores, requests that create one at the same moment may all find room, so the limit may be
exceeded by the number of concurrent requests.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

import msgspec

from hourwheel.context import Settings
from hourwheel.errors import Conflict
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Store, Table, items_of

Room: TypeAlias = Callable[[Store, Settings], None]
"""A check that raises ``Conflict`` if there is no room for one more."""


def check_subjects(store: Store, settings: Settings) -> None:
    """Raises ``Conflict`` if the deployment has ``max_subjects``."""
    records = items_of(store, Table.META, "subjects")
    subjects = (msgspec.msgpack.decode(record.value, type=Subject) for _, record in records)
    if _is_used_up((1 for subject in subjects if not subject.deleted), settings.max_subjects):
        raise Conflict(
            "too-many-subjects",
            f"there are {settings.max_subjects} subjects, which is the limit: delete one, or have the limit raised",
            field="subject",
        )


def check_groups(subject: Subject) -> Room:
    """Returns a check that raises ``Conflict`` if the subject has ``max_groups``."""

    def check(store: Store, settings: Settings) -> None:
        records = items_of(store, Table.META, f"groups/{subject.name}")
        groups = (msgspec.msgpack.decode(record.value, type=Group) for _, record in records)
        living = (1 for group in groups if not group.deleted and group.subject_generation == subject.generation)
        if _is_used_up(living, settings.max_groups):
            raise Conflict(
                "too-many-groups",
                f"subject {subject.name!r} has {settings.max_groups} groups, which is the limit: delete one, or "
                "have the limit raised",
                field="group",
            )

    return check


def _is_used_up(living: Iterator[int], limit: int) -> bool:
    # islice: a cell far above a lowered limit is not read to its end.
    return sum(islice(living, limit)) == limit
