"""Counts the messages that wait in their places for a message of their key, or for their next attempt."""

from dataclasses import dataclass

SOON_MS = 70_000
"""Retries that are due within this time count as pullable: the sweeper comes each minute, give or take seconds, and the
pusher that it starts waits for them."""


@dataclass
class ParkedCounts:
    """The numbers of keys that are ``held`` by a failed message, of those among them that are ``stopped`` until an
    operator decides. It also has the numbers of parked messages that wait for their turn, of failed ones that can be
    pulled, and of failed ones that wait for their time. ``pullable``: the number of those whose turn it is now or soon;
    ``oldest_row``: the row of the oldest one."""

    held: int = 0
    stopped: int = 0
    waiting: int = 0
    due: int = 0
    backing_off: int = 0
    pullable: int = 0
    oldest_row: int | None = None

    def note_row(self, row_no: int | None) -> None:
        """Notes the row of a parked message, if there is one."""
        if row_no is not None and (self.oldest_row is None or row_no < self.oldest_row):
            self.oldest_row = row_no


@dataclass(frozen=True)
class ParkedLag:
    """The parked messages in one pull log, and the time since which the oldest one waits."""

    counts: ParkedCounts
    oldest_ms: int | None
