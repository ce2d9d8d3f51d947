"""Defines what a consumer asks of a claim, what a claim takes, and what a try to claim finds."""

import sys
from dataclasses import dataclass
from typing import NamedTuple

from hourwheel.logs.cas import Versioned
from hourwheel.logs.rows import Row
from hourwheel.pull_log.claiming.retry_share import NOT_SHARED, RetryShare
from hourwheel.pull_log.keyed_rows import KeyedMessages
from hourwheel.pull_log.records import PullRow


@dataclass(frozen=True)
class Claim:
    """A claimed range: its pull row, the rows of the source log that it covers, and an upper bound of the bytes that
    its messages take in an answer."""

    row_no: int
    pull_row: Versioned[PullRow]
    rows: tuple[tuple[int, Row], ...]
    answer_bytes: int
    taken: tuple[KeyedMessages, ...] = ()
    """The messages of an ordered group, which its claims read."""
    retries: int = 0
    """The number of messages that a shared claim of an ordered group takes of keys that are tried again."""
    log_end: int | None = None
    """The row behind the last one of the source log, if the claim took all that was there."""
    suspect: bool = False
    """Whether the one message of the claim is a suspect: no other one belongs into its pull."""

    @property
    def first_count(self) -> int:
        """The index of the claim's first row in the counts of the pull row. The counts before are of earlier claims,
        and those behind the rows of the claim are of messages claimed ahead."""
        value = self.pull_row.value
        return len(value.counts) - value.ahead - len(self.rows)


class Nothing(NamedTuple):
    """The result of a look that found no message for the group: every row below ``end`` was examined, and the next
    claim will be pull row ``row_no``. ``unmatched``: the group's filter took none of the last rows, and no pull row
    passes over them yet."""

    row_no: int
    end: int
    unmatched: bool = False


class SettledRow(NamedTuple):
    """A row that a pull has acknowledged as a whole before it claims. ``streak`` and ``serial`` are those of the
    row, and ``held_ms`` the time from its last claim until then. The consumer holds no row below ``open_from``, as its
    process knows."""

    row_no: int
    streak: int
    held_ms: int = 0
    serial: bool = False
    open_from: int = 0


class ClaimRequest(NamedTuple):
    """A consumer's request for messages that take at most ``max_bytes`` in an answer. If the first row takes more, the
    messages that fit into an answer are claimed, or none with ``strict_bytes``. With ``only_row`` the claim is this
    pull row, or none. ``before`` is the row that the pull has acknowledged in this log, and ``share`` bounds the
    messages that are retried. With ``suspects`` the claim may be of one suspect: the pull has nothing else, and asks
    for suspects. A claim that has lost this many ``races`` gives up. The source has given out ``source_rows``, as far
    as the pull knows."""

    consumer: str
    max_messages: int
    max_bytes: int
    lease_ms: int
    strict_bytes: bool = False
    only_row: int | None = None
    before: SettledRow | None = None
    share: RetryShare = NOT_SHARED
    suspects: bool = False
    races: int = sys.maxsize
    source_rows: int = 0

    @property
    def takes_suspect(self) -> bool:
        """Whether the claim takes a suspect if it comes to one first."""
        return self.suspects and self.share.turn

    @property
    def holds_suspects_back(self) -> bool:
        """Whether only the share of the retries keeps the claim from a suspect."""
        return self.suspects and not self.share.turn

    def of_retries(self) -> "ClaimRequest":
        """Returns the request to the retry log, of which every message counts for the share."""
        share = self.share
        if share.messages is None:
            return self
        return self._replace(
            max_messages=min(share.messages, self.max_messages),
            max_bytes=share.bytes_of(self.max_bytes, self.max_messages),
            strict_bytes=self.strict_bytes or not share.turn,
        )


class ClaimResult(NamedTuple):
    """The result of a try to claim. ``limited``: a limit ended it, and there may be more messages. ``nothing``: it came
    to this end of the log without a message. ``held_back``: it left retries that exceed their share, or a suspect for
    another turn. ``suspects_wait``: it came to a suspect, and did not take it."""

    claim: Claim | None
    limited: bool
    nothing: Nothing | None = None
    held_back: bool = False
    suspects_wait: bool = False


class SettledClaim(NamedTuple):
    """The result of a try to settle a row and to claim what follows it in one write: the claim, or none, and the row as
    it is known now."""

    claimed: ClaimResult | None
    current: Versioned[PullRow] | None
