"""Checks delays and times of delivery, and converts them to the form of the HTTP API.

The server has the same rules. The client checks a value when the caller passes it, because one wrong delay would make
the server refuse a whole batch.
"""

import math
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from hourwheel.errors import Rejected
from hourwheel.model.due import delay_ms, limited_delay_ms
from hourwheel.model.fields import Delay as WireDelay
from hourwheel.times import parse_rfc3339, rfc3339

Delay: TypeAlias = float | str | timedelta
"""Seconds, "500ms", "10s", "5m", "2h", "90d", or a ``timedelta``."""

Moment: TypeAlias = datetime | str
"""A time with a zone, or one in RFC 3339."""


def checked_delay(delay: Delay) -> WireDelay:
    """Returns the delay as the API takes it. Raises ``ValueError`` for a value that is no delay. Only the server knows
    whether the delay is too long: a subject may shorten long delays."""
    wire = _plain(delay)
    try:
        delay_ms(wire, "delay")
    except Rejected as error:
        raise ValueError(str(error)) from None
    return wire


def checked_retry_delay(delay: Delay) -> WireDelay:
    """Returns the delay of a retry as the API takes it. Raises ``ValueError`` for a value that is no delay, or is more
    than 732 days."""
    wire = _plain(delay)
    _limited_ms(wire)
    return wire


def checked_moment(moment: Moment) -> str:
    """Returns the time in UTC, rounded up to milliseconds. Raises ``ValueError`` for a value that is no time, or has no
    zone."""
    if not isinstance(moment, datetime | str):
        raise ValueError(
            f"deliver_at must be a datetime with a zone, or text such as 2027-01-01T09:00:00Z, got {moment!r}"
        )
    if isinstance(moment, datetime) and moment.utcoffset() is None:
        raise ValueError(
            f"deliver_at has no zone, so its moment is unknown: {moment.isoformat()}; "
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


def check_precision(precision: str, delay: Delay | None, deliver_at: Moment | None) -> None:
    """Raises ``ValueError`` for an unknown precision, or one for a message that is not delayed."""
    if precision != "minute":
        raise ValueError(f'precision must be "minute" or left out, got {precision!r}')
    if delay is None is deliver_at:
        raise ValueError("only a message with delay or deliver_at has a precision")


def due_at(delay: Delay | None, deliver_at: Moment | None, now_ms: int) -> str:
    """Returns the time of delivery: ``deliver_at``, or ``delay`` from ``now_ms`` on. Raises ``ValueError`` unless
    exactly one of the two is given."""
    at_most_one(delay, deliver_at)
    if deliver_at is not None:
        return checked_moment(deliver_at)
    if delay is None:
        raise ValueError("say when: give delay or deliver_at")
    return rfc3339(now_ms + _limited_ms(_plain(delay)))


def _plain(delay: Delay) -> WireDelay:
    if isinstance(delay, timedelta):
        return delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, float | int | str):
        raise ValueError(f"delay must be a number of seconds, text such as '10m', or a timedelta, got {delay!r}")
    # JSON has no such number, and the encoder would write null.
    if isinstance(delay, float) and not math.isfinite(delay):
        raise ValueError(f"delay must be a finite number of seconds, got {delay}")
    return delay


def _limited_ms(delay: WireDelay) -> int:
    try:
        return limited_delay_ms(delay, "delay")
    except Rejected as error:
        raise ValueError(str(error)) from None


def span_text(since: datetime | None, until: datetime | None) -> dict[str, str | None]:
    """Returns the beginning and the end of a span as query parameters. Raises ``ValueError`` as ``utc_text`` does."""
    return {
        "from": None if since is None else utc_text(since, "since"),
        "to": None if until is None else utc_text(until, "until"),
    }


def utc_text(moment: datetime, name: str = "a time") -> str:
    """Returns the time as the API writes it, in UTC with milliseconds. Raises ``ValueError``, which calls the parameter
    ``name``, for a value that is no datetime or has no zone."""
    if not isinstance(moment, datetime):
        raise ValueError(f"{name} must be a datetime with a zone, such as datetime(..., tzinfo=UTC), got {moment!r}")
    if moment.utcoffset() is None:
        raise ValueError(f"{name} needs a zone, such as datetime(..., tzinfo=UTC): {moment.isoformat()} has none")
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
