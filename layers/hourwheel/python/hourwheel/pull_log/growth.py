"""Decides which rows of a pull log grow.

A pull that acknowledges all of the last row, and finds messages behind it, may move the end of the row on. That is one
write; closing the row and putting the next one are two. Two consumers that share a log alternate, so a row grows only
for a consumer that was alone for some pulls.
"""

import msgspec

from hourwheel.pull_log.claims import SettledRow
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.records import Growth, Position, PullRow

ALONE_PULLS = 3
"""The pulls in a row of which each has acknowledged the row before it: a second consumer ends growth at the cost of up
to three writes."""

GROWS_MS = 2_000
"""A row has the times of its last claim, so the time of a claim before it is wrong by this at most."""

_MOST_ROWS = 100  # each takes a byte or two of the pull row, which costs a second unit from 1 KB on, and of receipts
_MOST_MESSAGES = 1_000  # as many as one pull may have


def growth_of(row_no: int, before: SettledRow | None, now_ms: int) -> Growth | None:
    """Returns the growth of a new row, whose pull has acknowledged the row ``before``."""
    if before is None or before.row_no != row_no - 1:
        return None
    streak = min(before.streak + 1, ALONE_PULLS)
    return Growth(streak, until_ms=now_ms + GROWS_MS if streak == ALONE_PULLS else 0)


def may_grow(claimed: PullRow, parsed: ParsedSettlement, consumer: str, now_ms: int) -> bool:
    """Returns whether a row, as its receipt contains it, may grow in a pull of this consumer that settles the row."""
    if claimed.growth is None or not now_ms < claimed.growth.until_ms or claimed.consumer != consumer:
        return False
    # A claim that ends within a batch shares the row of the source with the next one.
    whole = parsed.acknowledges(claimed.claimed) and not claimed.end.index
    return whole and len(claimed.counts) < _MOST_ROWS and claimed.size < _MOST_MESSAGES


def grown(
    row: PullRow, counts: tuple[int, ...], end: Position, end_seq: int, claim: bytes, lease: tuple[int, int]
) -> PullRow:
    """Returns the row with another claim behind its messages, which are acknowledged. ``lease``: its start and end."""
    assert row.growth is not None
    claimed_ms, lease_until_ms = lease
    return msgspec.structs.replace(
        row,
        counts=row.counts + counts,
        end=end,
        end_seq=end_seq,
        claim=claim,
        claimed_ms=claimed_ms,
        lease_until_ms=lease_until_ms,
        # The former mark would stand for a settlement of this claim, which is not settled yet.
        last=b"",
        settled=frozenset(),
        growth=msgspec.structs.replace(row.growth, base=row.size, base_seq=row.end_seq),
    )
