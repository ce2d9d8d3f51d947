"""Claims messages ahead, so that many consumers of one log race for few rows.

A claim puts the next pull row, and of several consumers that try at the same moment one wins. A consumer that meets
others, and that asks for few messages at a time, therefore covers more rows than it is handed: the rest is *kept* for
its next pulls. Each of them acknowledges all that the row has handed out, and is handed the next kept messages, by one
update that compares the token of its receipt. So consumers race once in about sixteen pulls, and each of the others is
one write instead of two.

1. The range of the row is final from the put on: row *p + 1* begins behind the kept messages. Claims never overlap.
2. Only the update that acknowledges the whole claim hands out kept messages, in their order, by whole source rows.
3. Any other settlement of the row releases the kept messages to the retry log by the same update: a hand-over.
4. Any process does that too once the consumer was silent for ``AHEAD_KEPT_MS``, or its lease is over. Kept messages are
   no suspects: nobody has had them.
5. A row with kept messages is open. So the checkpoint and the archive treat these as leased. Lags and traces say that
   they wait.

- A claim keeps no more than its share of the rows that wait. The others are the consumers that have put rows since its
  consumer's former row (``others.py``). It keeps none for a consumer that needs more than ``AHEAD_MS`` for a pull.
- A claim keeps nothing for a consumer that has another open row, or had one when it claimed its former one. Such a
  consumer prefetches, as those of the package do. It would get later messages before the kept ones.
- A row tells that its consumer had no other one. So the rows behind it tell whether the consumer has one since. Where
  the former row does not tell, a claim also reads the rows before it that its process does not know to be closed.
- So a consumer that is alone, or prefetches, gets messages in the order of their offsets, unless they are retried.
- A claim keeps nothing while retries wait: each pull that the kept messages answer leaves the retries to others.
- The rows tell of other consumers: a claim reads all from the former row on, which finds the end of the log as well.
  So does a race that another consumer won. Nothing is remembered in a process, and a consumer
  that is alone claims as before.
- Rows come from a queue's first log, without order, filter or limits, on a store without transactions.

Rejected: a counter that hands out ranges. It is a third write for each message, the log's partition key still takes two
of them, and a range whose process ends is a hole. Rejected as well: pull logs in shards, where each look of an idle
consumer reads all of them.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hourwheel.logs.rows import Row
from hourwheel.pull_log.claiming.claim_range import ClaimRange
from hourwheel.pull_log.claiming.claims import ClaimRequest, SettledRow
from hourwheel.pull_log.claiming.others import Others
from hourwheel.pull_log.records import Position, PullRow, Tail

if TYPE_CHECKING:
    from hourwheel.pull_log.claiming.selection import Selection

AHEAD_PULLS = 31
"""With 32 pulls to a row, 64 consumers that each handle a message in 50 ms put 30 rows a second, and lose few races."""

AHEAD_MS = 2_000
"""A claim covers about as much ahead as its consumer handles in this time."""


_MOST_ROWS = 64  # each takes a byte or two of the pull row, and of receipts


def is_steady(before: SettledRow) -> bool:
    """Returns whether the consumer that has settled its row ``before`` is fast enough for messages to be kept for it.
    A longer time also leaves too many rows behind that row to look through."""
    return before.held_ms <= AHEAD_MS


def rows_ahead(request: ClaimRequest, tail: Tail, others: Others) -> int:
    """Returns how many source rows a claim at this end of the log may keep for further pulls, where its consumer meets
    these others."""
    before = request.before
    if before is None or not before.serial or request.share.messages is not None:
        return 0
    if others.beside or not others.names:
        return 0  # it prefetches, or nobody else has claimed since
    pulls = min(AHEAD_PULLS, AHEAD_MS // max(1, before.held_ms))
    waiting = request.source_rows - tail.position.row_no - 1
    return max(0, min(pulls * request.max_messages, _MOST_ROWS, waiting // (len(others.names) + 1)))


def keep_ahead(
    taken: ClaimRange, rows: Iterable[tuple[int, Row]], selection: "Selection", request: ClaimRequest
) -> None:
    """Extends a claim by messages of these ``rows`` behind it, which are kept for further pulls."""
    now_ms = selection.context.clock.now_ms()
    for row_no, row in rows:
        offer = selection.offer(row_no, row, 0, now_ms)
        whole = 0 < row.count == offer.fitting <= request.max_messages
        if not whole or row_no != taken.end.row_no:
            break
        taken.ahead.append(row.count)
        taken.end, taken.end_seq, taken.limited = Position(row_no + 1), row.first_seq + row.count, True


def kept_range(
    row: PullRow, rows: Iterable[tuple[int, Row]], selection: "Selection", request: ClaimRequest
) -> ClaimRange:
    """Returns the range of the kept messages of a row that the request has room for, out of the source's ``rows`` from
    the first kept one on. Empty if these cannot be handed out."""
    start = Position(first_kept(row))
    taken, now_ms = ClaimRange(start, start, 0), selection.context.clock.now_ms()
    for count, (row_no, stored) in zip(row.counts[len(row.counts) - row.ahead :], rows, strict=False):
        offer = selection.offer(row_no, stored, 0, now_ms)
        fits = row_no == taken.end.row_no and offer.fitting == count <= request.max_messages - taken.total
        if not fits or not taken.has_room_for(offer, request):
            break
        taken.add(row_no, stored, 0, count, offer)
    taken.limited = True
    return taken


def first_kept(row: PullRow) -> int:
    """Returns the number of the first source row whose messages are kept."""
    return row.first.row_no + len(row.counts) - row.ahead
