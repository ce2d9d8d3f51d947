"""Limits the number of subjects, and of the groups of a subject.

The registry counts them before it creates one more, in the same transaction where the store has transactions: there the
limits are exact. In other stores, requests that create one at the same moment may all find room, so the limit may be
exceeded by the number of concurrent requests.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from hourwheel.context import Settings
from hourwheel.errors import Conflict
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Store
from hourwheel.registry.stored_records import groups_behind, subjects_named
from hourwheel.registry.subject_list import SubjectList

Room: TypeAlias = Callable[[Store, Settings], None]
"""A check that raises ``Conflict`` if there is no room for one more."""


def subjects_check(listed: SubjectList) -> Room:
    """Returns a check that raises ``Conflict`` if the deployment has ``max_subjects``. It reads the records of the
    subjects only where the list has as many entries: some may be of subjects that were not created in the end."""

    def check(store: Store, settings: Settings) -> None:
        names = [entry.name for entry in listed.entries(store=store) if not entry.erased]
        if len(names) < settings.max_subjects:
            return
        subjects = (subject for subject in subjects_named(store, names) if not subject.deleted)
        if _is_used_up((1 for _ in subjects), settings.max_subjects):
            raise Conflict(
                "too-many-subjects",
                f"there are {settings.max_subjects} subjects, which is the limit: delete one, or have the limit raised",
                field="subject",
            )

    return check


def check_groups(subject: Subject) -> Room:
    """Returns a check that raises ``Conflict`` if the subject has ``max_groups``."""

    def check(store: Store, settings: Settings) -> None:
        groups = groups_behind(store, subject.name)
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
