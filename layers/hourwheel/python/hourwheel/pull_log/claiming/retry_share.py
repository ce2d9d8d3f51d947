"""Divides what a pull hands out between retries and new messages. Reads and writes nothing.

Chance decides about fractions of a message, so that pulls of one message share over time, and no process has to
remember what the pulls before it took.
"""

from typing import NamedTuple

from hourwheel.model.groups import Group


class RetryShare(NamedTuple):
    """The share of the retries in a claim, or what is left of the share of a pull."""

    messages: int | None = None
    """The most messages that are retried; None: any number."""
    turn: bool = True
    """Whether it is the retries' turn: the claim takes a suspect, which comes alone, or a single retry that does not
    fit into their share of the answer's bytes."""
    fills: bool = False
    """Whether the claim takes further retries where new messages leave room."""

    @property
    def is_empty(self) -> bool:
        """Whether the claim takes no retry before new messages."""
        return self.messages == 0

    def after(self, retries: int) -> "RetryShare":
        """Returns what is left for further claims of the same pull."""
        return self if self.messages is None else self._replace(messages=max(0, self.messages - retries))

    def bytes_of(self, max_bytes: int, max_messages: int) -> int:
        """Returns the share of the bytes of an answer that has room for ``max_messages``."""
        if self.messages is None or self.messages >= max_messages:
            return max_bytes
        return max_bytes * self.messages // max_messages


NOT_SHARED = RetryShare()


def share_of(group: Group, messages: int, *, single: bool, chance: float, fills: bool) -> RetryShare:
    """Returns the share of the retries in a pull of this many messages. A ``single`` claim is for retries or for new
    messages as a whole. The ``chance`` is drawn from 0 up to 1: in ``retry_percent`` of the pulls it is the retries'
    turn, and their share is at least one message then."""
    part = group.retry_percent / 100
    turn = chance >= 1 - part
    most = messages * turn if single else max(turn, int(messages * part + chance))
    return RetryShare(min(most, messages), turn=turn, fills=fills)
