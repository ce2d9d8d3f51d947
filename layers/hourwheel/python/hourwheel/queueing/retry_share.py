"""Divides what a pull hands out between retries and new messages. Reads and writes nothing.

Chance decides about fractions of a message, so that pulls of one message share over time, and no process has to
remember what the pulls before it took.
"""

from typing import NamedTuple

from hourwheel.model.groups import Group


class RetryShare(NamedTuple):
    """A claim takes at most this many ``messages`` that are retried (None: any number). With ``strict`` they fit into
    their share of the answer's bytes; without it, a single larger one is taken, too. With ``fills``, a claim takes
    further retries where new messages leave room."""

    messages: int | None = None
    strict: bool = False
    fills: bool = False

    def after(self, retries: int) -> "RetryShare":
        """Returns what is left for further claims of the same pull."""
        return self if self.messages is None else self._replace(messages=max(0, self.messages - retries))

    def bytes_of(self, max_bytes: int, max_messages: int) -> int:
        """Returns the share of the bytes of an answer that has room for ``max_messages``."""
        if self.messages is None or self.messages >= max_messages:
            return max_bytes
        return max_bytes * self.messages // max_messages


NOT_SHARED = RetryShare()


def share_of(group: Group, messages: int, *, single: bool, chances: tuple[float, float], fills: bool) -> RetryShare:
    """Returns the share of the retries in a pull of this many messages. A ``single`` claim is for retries or for new
    messages as a whole. The ``chances`` are drawn from 0 up to 1."""
    part, (first, second) = group.retry_percent / 100, chances
    most = messages * (first < part) if single else int(messages * part + first)
    # Retries that are larger than their share take turns with new messages, or neither would ever fit.
    return RetryShare(min(most, messages), strict=second >= part, fills=fills)
