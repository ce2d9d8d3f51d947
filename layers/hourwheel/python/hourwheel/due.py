"""How long messages wait, as their senders say it: ``delay`` or ``deliver_at``."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from hourwheel.errors import Rejected
from hourwheel.model import MAX_DELAY_MS, Delay, NewMessage
from hourwheel.times import parse_rfc3339, rfc3339

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"(\d{1,15}(?:\.\d{1,20})?)(ms|s|m|h|d)", re.ASCII)
_LARGEST_MS = 1e15
_LIMIT = "a message may wait 732 days (two years) at most"


class Due(NamedTuple):
    """When a message is due: so long after it is accepted, or at a fixed time; ``field`` is where that was said."""

    field: str
    after_ms: int | None = None
    at_ms: int | None = None

    def due_ms(self, now_ms: int) -> int:
        if self.at_ms is not None:
            return self.at_ms
        assert self.after_ms is not None
        return now_ms + self.after_ms


def delay_ms(delay: Delay, field: str) -> int:
    """A delay as milliseconds, rounded up; raises ``Rejected`` for one that is none."""
    if isinstance(delay, float) and math.isnan(delay):
        amount = math.nan
    elif not isinstance(delay, str):
        amount = float(delay) * 1_000 if abs(delay) < _LARGEST_MS / 1_000 else math.inf if delay > 0 else -math.inf
    else:
        found = _TEXT.fullmatch(delay)
        if found is None:
            raise Rejected(
                "field-invalid",
                f"{field} must be a number of seconds, or one with ms, s, m, h or d such as '90d', got {delay[:40]!r}",
                field=field,
            )
        amount = float(found[1]) * _UNITS[found[2]]
    if math.isnan(amount) or amount < 0:
        raise Rejected("field-invalid", f"{field} must be 0 or more, got {str(delay)[:40]}", field=field)
    # The limit is checked later, where the subject's settings are known.
    return math.ceil(min(amount, _LARGEST_MS))


def limited_delay_ms(delay: Delay, field: str) -> int:
    """The same for a delay that must be within the limit."""
    wait_ms = delay_ms(delay, field)
    if wait_ms > MAX_DELAY_MS:
        raise Rejected("delay-too-long", f"{field} is too long: {_LIMIT}", field=field)
    return wait_ms


def dues_of(messages: Sequence[NewMessage]) -> dict[int, Due]:
    """The waits of the messages that have one, by index. Raises ``Rejected``."""
    late = [at for at, message in enumerate(messages) if message.delay is not None or message.deliver_at is not None]
    return {index: _due_of(messages[index], index) for index in late}


def _due_of(message: NewMessage, index: int) -> Due:
    if message.delay is None and message.deliver_at is not None:
        place = f"messages[{index}].deliver_at"
        return Due(place, at_ms=parse_rfc3339(message.deliver_at, place))
    if message.deliver_at is not None or message.delay is None:
        raise Rejected("field-invalid", "a message has at most one of delay and deliver_at", field=f"messages[{index}]")
    place = f"messages[{index}].delay"
    return Due(place, after_ms=delay_ms(message.delay, place))


def check_limit(due_ms: int, now_ms: int, field: str) -> int:
    """The due time; raises ``Rejected`` when it is too far away."""
    latest_ms = now_ms + MAX_DELAY_MS
    if due_ms > latest_ms:
        raise Rejected(
            "delay-too-long", f"{field} is too far ahead: {_LIMIT}, until {rfc3339(latest_ms)} now", field=field
        )
    return due_ms
