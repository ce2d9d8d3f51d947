"""Reads ``delay`` and ``deliver_at``, by which producers say when a message is due."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from hourwheel.errors import Rejected
from hourwheel.model.fields import MAX_DELAY_MS, Delay
from hourwheel.model.messages import NewMessage, are_plain
from hourwheel.times import parse_rfc3339, rfc3339

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"(-?)(\d{1,15}(?:\.\d{1,20})?)(ms|s|m|h|d)", re.ASCII)
_LARGEST_MS = 1e15  # beyond every limit, and exact as a float
_LIMIT = "a message may wait 732 days (two years) at most"


class Due(NamedTuple):
    """The due time of a message: ``after_ms`` after it is accepted, or the fixed time ``at_ms``. ``field`` is the JSON
    path of the value."""

    field: str
    after_ms: int | None = None
    at_ms: int | None = None

    def due_ms(self, now_ms: int) -> int:
        """Returns the due time of a message that is accepted at ``now_ms``."""
        if self.at_ms is not None:
            return self.at_ms
        assert self.after_ms is not None
        return now_ms + self.after_ms


def delay_ms(delay: Delay, field: str) -> int:
    """Returns a delay as milliseconds, rounded up; raises ``Rejected`` for a value that is no delay."""
    if isinstance(delay, float) and math.isnan(delay):
        amount = math.nan
    elif not isinstance(delay, str):
        amount = float(delay) * 1_000 if abs(delay) < _LARGEST_MS / 1_000 else math.inf if delay > 0 else -math.inf
    else:
        match = _TEXT.fullmatch(delay)
        if match is None:
            raise Rejected(
                "field-invalid",
                f"{field} must be a number of seconds, or one with ms, s, m, h or d such as '90d', got {delay[:40]!r}",
                field=field,
            )
        amount = -math.inf if match[1] else float(match[2]) * _UNITS[match[3]]
    if math.isnan(amount) or amount < 0:
        raise Rejected("field-invalid", f"{field} must be 0 or more, got {str(delay)[:40]}", field=field)
    # The limit is checked later, where the subject's settings are known.
    return math.ceil(min(amount, _LARGEST_MS))


def limited_delay_ms(delay: Delay, field: str) -> int:
    """Returns a delay as milliseconds, as ``delay_ms`` does; raises ``Rejected`` also for one above the limit."""
    limited_ms = delay_ms(delay, field)
    if limited_ms > MAX_DELAY_MS:
        raise Rejected("delay-too-long", f"{field} is too long: {_LIMIT}", field=field)
    return limited_ms


def dues_of(messages: Sequence[NewMessage]) -> dict[int, Due]:
    """Returns the due times of the delayed messages, by index. Raises ``Rejected`` for a message whose time is
    invalid."""
    if are_plain(messages):
        return {}
    return {
        i: _due_of(message, i)
        for i, message in enumerate(messages)
        if message.delay is not None or message.deliver_at is not None or message.precision is not None
    }


def _due_of(message: NewMessage, index: int) -> Due:
    if message.delay is None and message.deliver_at is not None:
        field = f"messages[{index}].deliver_at"
        return Due(field, at_ms=parse_rfc3339(message.deliver_at, field))
    if message.delay is None:
        raise Rejected(
            "field-invalid",
            "only a message with delay or deliver_at has a precision",
            field=f"messages[{index}].precision",
        )
    if message.deliver_at is not None:
        raise Rejected("field-invalid", "a message has at most one of delay and deliver_at", field=f"messages[{index}]")
    field = f"messages[{index}].delay"
    return Due(field, after_ms=delay_ms(message.delay, field))


def check_limit(due_ms: int, now_ms: int, field: str) -> int:
    """Returns the due time; raises ``Rejected`` when it is too far ahead."""
    latest_ms = now_ms + MAX_DELAY_MS
    if due_ms > latest_ms:
        raise Rejected(
            "delay-too-long", f"{field} is too far ahead: {_LIMIT}, until {rfc3339(latest_ms)} now", field=field
        )
    return due_ms
