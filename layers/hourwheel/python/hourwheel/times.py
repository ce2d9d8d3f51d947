"""Converts and compares times: RFC 3339 in UTC with milliseconds outside of the library, Unix milliseconds inside."""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from hourwheel.errors import Rejected

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_FORM = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]([01]\d|2[0-3]):[0-5]\d)", re.ASCII)
_EPOCH = datetime.fromtimestamp(0, UTC)
_MILLISECOND = timedelta(milliseconds=1)
_SECONDS_LENGTH = len("2026-11-20T09:00:00")


def rfc3339(ms: int) -> str:
    """Returns Unix milliseconds as text such as ``2026-11-20T09:00:00.000Z``."""
    seconds, rest = divmod(ms, 1_000)
    return f"{_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1_024)
def _second(seconds: int) -> str:
    # The times of one answer, or of one step of a wheel, mostly lie within a few seconds.
    # Not by strftime, which writes years before 1000 with fewer than four digits; not by fromtimestamp, which some
    # systems refuse below 1970.
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:_SECONDS_LENGTH]


def parse_rfc3339(text: str, field: str) -> int:
    """Returns the Unix milliseconds of a time with a zone, rounded up; raises ``Rejected`` for any other text."""
    try:
        if _FORM.fullmatch(text) is None:
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
        return -((_EPOCH - moment) // _MILLISECOND)  # up: a message is never sent before its time
    except (ValueError, OverflowError):
        raise Rejected(
            "field-invalid",
            f"{field} must be an RFC 3339 time with seconds and a zone, such as 2026-11-20T09:00:00Z or"
            " 2026-11-20T10:00:00+01:00",
            field=field,
        ) from None


def within(since_ms: int, now_ms: int, length_ms: int) -> bool:
    """Returns whether less than ``length_ms`` has passed since ``since_ms``. A clock that was set back gives False."""
    return 0 <= now_ms - since_ms < length_ms
