"""Decides which rows of a pull log grow.

A pull that acknowledges all of the last row, and finds messages behind it, may move the end of the row on. That is one
write; closing the row and putting the next one are two: a million messages that travel alone cost $3.00 through
function URLs instead of $3.90. Two consumers that share a log alternate, so a row grows only for a consumer that was
alone for some pulls.

1. Only an update that compares the token of the receipt moves the end on. So the row is as it was claimed: nobody has
   settled, extended or ended any of it.
2. Row *p + 1*, a claim or a seek, is put only when row *p* is closed or does not grow. A consumer that finds a message
   behind a row that grows first removes the mark, by compare-and-set, and begins at the end that it reads there.
3. Every other update of the row removes the mark, and a mark that was removed never returns.

So the end of row *p* is final before row *p + 1* exists, and claims never overlap. Ending a growth costs the second
consumer one write, and the first one that is refused: 1.33 writes a pull if the second makes one pull of 20.

- A receipt counts from the first message of its own claim (``base``). A repeated acknowledgement of an earlier claim is
  ``settled``, any other settlement of an earlier claim is ``stale``.
- A look for leases stops at a row that grows, and reads it again the next time.
- A claim is known by its own token: another consumer may end the growth before a put whose answer was lost is repeated.
- Unreadable messages of a growth leave the claim. If none is left, the row is closed as settled.
- No lease gets shorter: a pull that asks for a lease that ends before that of the row takes the two writes.
- The archive takes closed rows only. While the lease of a row that has grown is extended, a rebuild would deliver up to
  1,000 acknowledged messages again.
- No row grows in ordered groups, with a filter or limits, or on a store with transactions. None grows where a claim
  ends within a batch, before rows without messages or retries that wait, and where a pull settles the row twice.

Rejected: a send that skips the counter and tries the row behind the last one. Sequences come from the counter, so two
batches could share an offset, and a seal would not stop such a sender. Rejected as well: a claim that settles the row
before it. A sweeper that has read that row as open could end its lease after the claim was answered ``settled``.
"""

import msgspec

from hourwheel.pull_log.claiming.claim_range import ClaimRange
from hourwheel.pull_log.claiming.claims import SettledRow
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.records import Growth, PullRow

ALONE_PULLS = 3
"""The pulls in a row of which each has acknowledged the row before it: a second consumer ends growth at the cost of up
to three writes."""

GROWS_MS = 2_000
"""A row has the times of its last claim, so the time of a claim before it is wrong by this at most."""

_MOST_ROWS = 100  # each takes a byte or two of the pull row, which costs a second unit from 1 KB on, and of receipts
_MOST_MESSAGES = 1_000  # as many as one pull may have


def growth_of(
    row_no: int, before: SettledRow | None, now_ms: int, ahead: int = 0, *, serial: bool = False
) -> Growth | None:
    """Returns the growth of a new row, whose pull has acknowledged the row ``before``. With rows ``ahead`` its end is
    final. ``serial``: its consumer holds no other row."""
    if ahead:
        return Growth(0, ahead=ahead, serial=serial)
    if before is None or before.row_no != row_no - 1:
        return Growth(0, serial=True) if serial else None
    streak = min(before.streak + 1, ALONE_PULLS)
    return Growth(streak, until_ms=now_ms + GROWS_MS if streak == ALONE_PULLS else 0, serial=serial)


def may_grow(claimed: PullRow, parsed: ParsedSettlement, consumer: str, now_ms: int) -> bool:
    """Returns whether a row, as its receipt contains it, may grow or hand out kept messages in a pull of this consumer
    that settles the row."""
    if claimed.growth is None or claimed.consumer != consumer or not parsed.acknowledges(claimed.claimed):
        return False
    if claimed.kept:
        return True
    # A claim that ends within a batch shares the row of the source with the next one.
    whole = now_ms < claimed.growth.until_ms and not claimed.end.index
    return whole and len(claimed.counts) < _MOST_ROWS and claimed.size < _MOST_MESSAGES


def grown(row: PullRow, taken: ClaimRange, claim: bytes, lease: tuple[int, int]) -> PullRow:
    """Returns the row with another claim behind its messages, which are acknowledged. ``lease``: its start and end."""
    assert row.growth is not None
    claimed_ms, lease_until_ms = lease
    return msgspec.structs.replace(
        row,
        counts=(*row.counts, *taken.counts),
        end=taken.end,
        end_seq=taken.end_seq,
        claim=claim,
        claimed_ms=claimed_ms,
        lease_until_ms=lease_until_ms,
        # The former mark would stand for a settlement of this claim, which is not settled yet.
        last=b"",
        settled=frozenset(),
        growth=msgspec.structs.replace(row.growth, base=row.size, base_seq=row.end_seq),
    )


def taken_on(row: PullRow, taken: ClaimRange, claim: bytes, lease: tuple[int, int]) -> PullRow:
    """Returns the row with a claim of these kept messages, behind those that are acknowledged. ``lease``: its start and
    end."""
    assert row.growth is not None
    claimed_ms, lease_until_ms = lease
    first_seq = taken.rows[0][1].first_seq
    return msgspec.structs.replace(
        row,
        claim=claim,
        claimed_ms=claimed_ms,
        lease_until_ms=lease_until_ms,
        # The former mark would stand for a settlement of this claim, which is not settled yet.
        last=b"",
        settled=frozenset(),
        growth=msgspec.structs.replace(
            row.growth, base=row.size, base_seq=first_seq, ahead=row.ahead - len(taken.rows)
        ),
    )
