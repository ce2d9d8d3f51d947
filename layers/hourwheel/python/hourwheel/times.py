"""Times at the edge: RFC 3339 in UTC with milliseconds; inside, Unix milliseconds."""

from datetime import UTC, datetime

from hourwheel.errors import Rejected


def rfc3339(ms: int) -> str:
    """Unix milliseconds as ``2026-11-20T09:00:00.000Z``."""
    whole, rest = divmod(ms, 1_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def parse_rfc3339(text: str, field: str) -> int:
    """Unix milliseconds of a time with a zone; raises ``Rejected`` for anything else."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("it has no zone")
        return int(moment.timestamp() * 1_000)
    except (ValueError, OverflowError) as error:
        raise Rejected(
            "field-invalid", f"{field} must be an RFC 3339 time such as 2026-11-20T09:00:00Z: {error}", field=field
        ) from None
