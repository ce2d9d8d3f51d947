"""Creates subjects and groups that a program needs, and does not change existing ones."""

from contextlib import suppress

from hourwheel.client.api import Api
from hourwheel.client.errors import NotFound, Unauthorized


def ensure_subject(api: Api, subject: str, *, retention_seconds: int) -> None:
    """Creates a subject if it is missing. An existing one keeps the settings that an operator chose.

    Does nothing if the client may only send: then the first message creates the subject.
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
    """Creates a group if it is missing. It begins at the first message that is kept or, with ``latest``, behind the
    last one; with ``consumer_expires_seconds`` it is a broadcast group.

    Does nothing if the client may only send.
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
