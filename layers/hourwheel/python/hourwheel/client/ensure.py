"""Creates subjects and groups that a program needs, and leaves those that are there as they are."""

from contextlib import suppress

from hourwheel.client.api import Api
from hourwheel.client.errors import NotFound, Unauthorized


def ensure_subject(api: Api, subject: str, *, retention_seconds: int) -> None:
    """Creates a subject that is missing. The settings of an existing one stay as an operator chose them.

    A client that may only send does nothing: the first message creates the subject.
    """
    with suppress(Unauthorized):
        try:
            api.get_subject(subject)
        except NotFound:
            api.put_subject(subject, retention_seconds=retention_seconds)


def ensure_group(
    api: Api,
    subject: str,
    group: str,
    *,
    max_attempts: int,
    latest: bool = False,
    consumer_expires_seconds: int | None = None,
) -> None:
    """Creates a group that is missing, at the first message that is kept or, with ``latest``, behind the last one.

    With ``consumer_expires_seconds`` the group broadcasts. A client that may only send does nothing.
    """
    with suppress(Unauthorized):
        try:
            api.get_group(subject, group)
        except NotFound:
            api.put_group(
                subject,
                group,
                start="latest" if latest else "earliest",
                max_attempts=max_attempts,
                broadcast=None if consumer_expires_seconds is None else True,
                consumer_expires_seconds=consumer_expires_seconds,
            )
