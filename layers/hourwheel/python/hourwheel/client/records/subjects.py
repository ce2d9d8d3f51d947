"""Defines subjects, as the API answers them."""

from datetime import datetime

from msgspec import Struct


class Subject(Struct, frozen=True, kw_only=True):
    """A subject and its settings. ``groups`` has the names of the first 100 groups; if there are ``more_groups``,
    ``Api.list_groups`` lists them. While a subject is ``paused``, no group gets messages; a ``read_only`` one refuses
    new messages.

    Example:
        >>> subject = api.get_subject("orders")
        >>> subject.queues, subject.retention_seconds
        (1, 259200)
    """

    subject: str
    queues: int
    retention_seconds: int
    created_at: datetime
    clamp_delays: bool = False
    paused: bool = False
    read_only: bool = False
    groups: list[str] = []
    more_groups: bool = False


class SubjectPage(Struct, frozen=True, kw_only=True):
    """A page of subjects. ``next`` is the ``after`` of the next page; None after the last one.

    Example:
        >>> api.list_subjects(limit=10).next is None
        True
    """

    subjects: list[Subject]
    next: str | None = None
