"""Defines what needs an operator, as the API answers it."""

from datetime import datetime
from typing import Literal

from msgspec import Struct


class Concern(Struct, frozen=True, kw_only=True):
    """A state that needs an operator, of a ``group`` of a ``subject``, or of the cell, volume or bucket ``name``.
    ``text`` says it in a sentence, and ``command`` is the command that helps.

    ``since`` is the time of the oldest message, of the first dead letter or of the last pull. ``drain_seconds`` is the
    time that the group needs for its backlog at the rates of now.

    Example:
        >>> [concern.command for concern in api.attention().concerns if concern.level == "alarm"]
        []
    """

    kind: str
    level: Literal["alarm", "warning", "notice"]
    text: str
    command: str
    subject: str | None = None
    group: str | None = None
    name: str | None = None
    messages: int | None = None
    since: datetime | None = None
    rise_per_second: float | None = None
    pulled_per_second: float | None = None
    drain_seconds: float | None = None


class AttentionPage(Struct, frozen=True, kw_only=True):
    """Lists what needs an operator, the gravest first: up to the limit of the call, of ``total`` in all. ``complete``
    is False while the server has not read every subject yet. The oldest numbers were read at ``oldest_read_at``.

    Example:
        >>> api.attention().complete
        True
    """

    concerns: list[Concern]
    total: int
    at: datetime
    complete: bool
    oldest_read_at: datetime | None = None
