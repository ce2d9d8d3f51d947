"""Defines subjects, as the API answers them."""

from datetime import datetime

from msgspec import Struct, field

from hourwheel.model.subject_settings import SubjectSettings


class Subject(SubjectSettings, frozen=True, kw_only=True):
    """A subject and its settings, which ``Api.put_subject`` explains. ``groups`` has the names of the first 100 groups;
    if there are ``more_groups``, ``Api.list_groups`` lists them. While a subject is ``paused``, no group gets messages.

    Example:
        >>> subject = api.get_subject("orders")
        >>> subject.queues, subject.retention_seconds
        (1, 259200)
    """

    subject: str
    created_at: datetime
    paused: bool = False
    groups: list[str] = field(default_factory=list)
    more_groups: bool = False


class SubjectPage(Struct, frozen=True, kw_only=True):
    """A page of subjects. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_subjects(limit=10).next is None
        True
    """

    subjects: list[Subject]
    next: str | None = None
