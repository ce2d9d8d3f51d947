"""Signs and reads ids of delayed messages: the position of the message and a keyed digest, so that nobody can forge
one.

{start of its bucket, s, hex}-{minutes}-{shard}-{row}-{index}-{HMAC-SHA-256 of the rest, first 16 hex digits}
"""

import hashlib
import hmac
import re
from dataclasses import dataclass

from hourwheel.buckets.buckets import Bucket
from hourwheel.errors import Rejected

_DIGITS = 16  # 64 bits: nobody finds a valid digest by trying requests
_FORM = re.compile(r"([0-9a-f]{1,10})-(\d{1,2})-(\d{1,3})-(\d{1,16})-(\d{1,3})", re.ASCII)


@dataclass(frozen=True)
class SchedulePosition:
    """The position of a delayed message: its index in a row of its bucket's schedule log."""

    bucket: Bucket
    row_no: int
    index: int


def sign_scheduled_id(secret: bytes, position: SchedulePosition) -> str:
    bucket = position.bucket
    text = f"{bucket.start_ms // 1_000:x}-{bucket.minutes}-{bucket.shard}-{position.row_no}-{position.index}"
    return f"{text}-{_digest(secret, text)}"


def read_scheduled_id(secret: bytes, scheduled_id: str) -> SchedulePosition:
    """Returns the position that the id names; raises ``Rejected`` for an id that this deployment did not sign."""
    text, _, digest = scheduled_id.rpartition("-")
    position = unchecked_position(scheduled_id)
    if position is None or not hmac.compare_digest(digest.encode(), _digest(secret, text).encode()):
        raise Rejected(
            "scheduled-id-invalid",
            "this is not the id of a delayed message of this deployment: use scheduled_id as it came when it was sent",
            field="id",
        )
    return position


def unchecked_position(scheduled_id: str) -> SchedulePosition | None:
    """Returns the position that the id names, whoever signed it; None for any other text. For readers of an archive,
    which has no secret and whose readers may read everything."""
    match = _FORM.fullmatch(scheduled_id.rpartition("-")[0])
    if match is None:
        return None
    start, minutes, shard, row, index = match.groups()
    return SchedulePosition(Bucket(int(start, 16) * 1_000, int(minutes), int(shard)), int(row), int(index))


def _digest(secret: bytes, text: str) -> str:
    return hmac.digest(secret, b"scheduled " + text.encode(), hashlib.sha256).hex()[:_DIGITS]
