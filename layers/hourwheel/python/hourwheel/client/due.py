"""Delays and times of delivery, as callers say them and as they travel.

Their rules are the server's own. What breaks one is told where it was said: one bad delay would spoil a whole batch.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from hourwheel import model
from hourwheel.due import delay_ms, limited_delay_ms
from hourwheel.errors import Rejected
from hourwheel.times import parse_rfc3339, rfc3339

Delay: TypeAlias = float | str | timedelta
"""Seconds, "500ms", "10s", "5m", "2h", "90d", or a ``timedelta``."""

Moment: TypeAlias = datetime | str
"""A time with a zone, or one in RFC 3339."""


def checked_delay(delay: Delay) -> model.Delay:
    """The delay as it travels; how long it may be is for the subject to say. Raises ``ValueError``."""
    wire = _plain(delay)
    try:
        delay_ms(wire, "delay")
    except Rejected as error:
        raise ValueError(str(error)) from None
    return wire


def checked_retry_delay(delay: Delay) -> model.Delay:
    """The same for a delay that has the same limit everywhere."""
    wire = _plain(delay)
    _limited_ms(wire)
    return wire


def checked_moment(moment: Moment) -> str:
    """The time as it travels: in UTC, with milliseconds, never before the one given. Raises ``ValueError``."""
    if not isinstance(moment, datetime | str):
        raise ValueError(f"deliver_at must be a datetime with a zone, or text such as 2027-01-01T09:00:00Z: {moment!r}")
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        raise ValueError(
            f"deliver_at has no zone, so nobody can tell when it is: {moment.isoformat()}; "
            "give it one, such as datetime(..., tzinfo=UTC) or local.astimezone()"
        )
    try:
        text = moment.astimezone(UTC).isoformat() if isinstance(moment, datetime) else moment
        return rfc3339(parse_rfc3339(text, "deliver_at"))
    except (Rejected, OverflowError) as error:
        raise ValueError(str(error)) from None


def at_most_one(delay: Delay | None, deliver_at: Moment | None) -> None:
    if delay is not None and deliver_at is not None:
        raise ValueError("give delay or deliver_at, not both")


def due_at(delay: Delay | None, deliver_at: Moment | None, now_ms: int) -> str:
    """The one that is given, as a time. Raises ``ValueError``."""
    at_most_one(delay, deliver_at)
    if deliver_at is not None:
        return checked_moment(deliver_at)
    if delay is None:
        raise ValueError("say when: give delay or deliver_at")
    return rfc3339(now_ms + _limited_ms(_plain(delay)))


def _plain(delay: Delay) -> model.Delay:
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    if isinstance(delay, float) and not math.isfinite(delay):
        raise ValueError(f"delay must be a number of seconds, got {delay}")  # JSON has none such: it would be null
    return delay


def _limited_ms(delay: model.Delay) -> int:
    try:
        return limited_delay_ms(delay, "delay")
    except Rejected as error:
        raise ValueError(str(error)) from None
