"""Decides when a consumer takes a suspect: a message whose lease ended while a consumer held it.

The message may be the one that ended that consumer. So it is taken by a pull that begins when nothing else is in hand,
and no other message is pulled until it is decided. A process that ends loses all that its consumers hold: one of them
at a time has the turn.
"""

import os
from collections.abc import Mapping
from typing import Any

from hourwheel.client.consuming.dozing import Doze
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.backoff import PullBackoff

_TRY_AGAIN_SECONDS = 0.2
"""A consumer that waits for the turn of another one in its process looks this often."""

_turns: dict[int, object] = {}
"""The consumer that has the turn, by process: a forked child has not got the turn of its parent. Without a lock, which
a fork could copy held: each step is atomic."""


def _take_turn(consumer: object) -> bool:
    return _turns.setdefault(os.getpid(), consumer) is consumer


def _end_turn(consumer: object) -> None:
    if _turns.get(os.getpid()) is consumer:
        del _turns[os.getpid()]


class SuspectTurn:
    """The part of a consumer that takes suspects. Not thread-safe: the prefetcher calls it under its lock.

    Each pull says that it takes no suspect, until an answer says that suspects wait. Then the consumer lets its
    messages be handled without pulling further ones, and pulls suspects one by one. After ``most`` of them it makes one
    pull for other messages, so that neither waits for the other without end.
    """

    def __init__(self, leases: LeaseTracker, most: int) -> None:
        self._leases = leases
        self._most = most
        self._in_a_row = 0
        self._has_turn = False
        self._in_vain = False
        self.wait = False
        """Whether suspects wait at the server, as far as this consumer knows."""

    @property
    def draining(self) -> bool:
        """Whether a message that is decided may let the next pull begin."""
        return self.wait or self._has_turn

    @property
    def taking(self) -> bool:
        """Whether the pull under way takes suspects. It does not wait: suspects of other consumers of the process may
        be there."""
        return self._has_turn

    @property
    def pause_seconds(self) -> float:
        """How long to pause after an answer without messages that says that suspects wait."""
        return _TRY_AGAIN_SECONDS if self._in_vain else 0.0

    def may_pull(self) -> bool:
        """Returns whether a pull may begin: not beside a suspect, and not before the messages in hand are decided if a
        suspect waits."""
        if not self.draining:
            return True
        if self._leases.holds_suspect:
            return False
        return not (self._takes_next and self._leases.in_hand)

    @property
    def _takes_next(self) -> bool:
        return self.wait and self._in_a_row < self._most

    def fields(self, *, alone: bool = False) -> Mapping[str, Any]:
        """Returns what the next pull says about suspects. It takes one if some wait, or with ``alone``, and nothing is
        in hand in this consumer, and no other consumer of the process has the turn."""
        if self._leases.holds_suspect:
            return {"suspects": False}
        if (self._takes_next or alone) and not self._leases.in_hand and _take_turn(self):
            self._has_turn, self._in_vain = True, False
            return {}
        self._in_vain = self._takes_next
        self.end()
        return {"suspects": False}

    def answered(self, pulled: Pulled | CompactPulls) -> None:
        """Records an answer, whose pulls are open."""
        taken = self._leases.holds_suspect
        self._in_a_row = self._in_a_row + 1 if taken else 0
        self.wait = taken or pulled.suspects_wait
        if not taken:
            self.end()

    def end(self) -> None:
        """Gives the turn up, if this consumer has it, and lets another one take suspects."""
        if self._has_turn and not self._leases.holds_suspect:
            self._has_turn = False
            _end_turn(self)

    def stop(self) -> None:
        """Gives the turn up: the consumer has ended."""
        self._has_turn = False
        _end_turn(self)


def rest_after(pulled: Pulled | CompactPulls, backoff: PullBackoff, doze: Doze, turn: SuspectTurn) -> None:
    """Records what the answer to a pull says about the next pulls."""
    doze.answered(bool(pulled.pulls))
    if pulled.next_pull_seconds or pulled.wakeup is not None:
        backoff.rests(pulled.next_pull_seconds)
    if pulled.suspects_wait and not pulled.pulls:
        backoff.rests(turn.pause_seconds)
