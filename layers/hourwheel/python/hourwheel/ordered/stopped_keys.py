"""Decides about stopped keys of an ordered group, for an operator: the first message is tried again, or given up.

A decision is a row of the pull log, as a claim is: it takes the first message of each key and settles it at once. So it
comes before or after each claim, never beside one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Conflict
from hourwheel.handover.copies import ATTEMPTS, REJECTED
from hourwheel.handover.handover import Transfer, release, reserve
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.key_states import KeyStates
from hourwheel.pull_log.ordered_rows import STOPPED_MS, Order, OrderedRow, Parked, digest_of
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, CLOSING, SETTLED
from hourwheel.pull_log.transfers import finish

_NAMED = 5  # keys that a refusal names, each with up to 40 characters
_AT_ONCE = 100
"""A decision takes the messages of at most this many keys: its row stays small, and so does a row of the dead log."""


def not_stopped(key_states: KeyStateCache, logs: Iterable[PullLog], keys: Iterable[str]) -> frozenset[str]:
    """Returns those of the keys that are stopped in none of the logs."""
    stopped = {
        digest
        for log in logs
        for digest, entries in key_states.current(log).parked.items()
        if entries[0].due_ms == STOPPED_MS
    }
    return frozenset(key for key in keys if digest_of(key, 0, 0) not in stopped)


def key_not_stopped(group: Group, keys: Iterable[str]) -> Conflict:
    """Returns the refusal of a decision about keys that are not stopped."""
    names = sorted(keys)
    more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
    named = ", ".join(repr(key[:40]) for key in names[:_NAMED])
    noun, verb, them = ("key", "is", "it") if len(names) == 1 else ("keys", "are", "them")
    return Conflict(
        "key-not-stopped",
        f"{noun} {named}{more} of group {group.name!r} of subject {group.subject!r} {verb} not stopped (a decision"
        f" before this one may have let {them} go on): nothing was decided; the lag of the group names the stopped"
        " keys",
        field="keys",
    )


@dataclass(frozen=True)
class KeyDecision:
    """Decides about the stopped keys of one pull log: of ``keys``, or of all (None)."""

    key_states: KeyStateCache
    log: PullLog
    subject: Subject
    keys: frozenset[str] | None
    then: Literal["retry", "dead"]

    def decide(self) -> int:
        """Decides about all of these keys that are stopped, and returns their number."""
        total, dead_log = 0, self.log.group.dead_log
        while True:
            decided = self.log.context.atomically(
                lambda context: self._on(context)._decide(), [self.log.source.name, dead_log]
            )
            total += decided
            if decided < _AT_ONCE:
                return total

    def _on(self, context: Context) -> "KeyDecision":
        return KeyDecision(self.key_states, self.log.on(context), self.subject, self.keys, self.then)

    def _decide(self) -> int:
        while True:
            state = self.key_states.current(self.log)
            chosen = self._stopped(state)
            if not chosen:
                return 0
            row = self._row(state, chosen)
            outcome = self.log.record(state.row_no).swap(None, row, token=row.claim, expires_ms=row.garbage_ms)
            if (written := outcome.written) is not None:
                finish(self.log, state.row_no, written)
                return len(chosen)
            # Another claim won this row, and may have changed what is stopped. No reader waits for the reserved row.
            release(self.log.context, row.transfers)

    def _stopped(self, state: KeyStates) -> list[tuple[bytes, Parked]]:
        digests = None if self.keys is None else {digest_of(key, 0, 0) for key in self.keys}
        heads = [(digest, entries[0]) for digest, entries in state.parked.items() if entries[0].due_ms == STOPPED_MS]
        return [head for head in heads if digests is None or head[0] in digests][:_AT_ONCE]

    def _row(self, state: KeyStates, chosen: Sequence[tuple[bytes, Parked]]) -> OrderedRow:
        context, now_ms = self.log.context, self.log.context.clock.now_ms()
        order = Order(
            digests=b"".join(digest for digest, _ in chosen),
            parked=tuple((parked.row_no, parked.in_row, parked.attempt) for _, parked in chosen),
        )
        row = OrderedRow(
            consumer="",
            first=state.position,
            counts=(),
            end=state.position,
            end_seq=state.seq,
            claim=context.ids.token(),
            claimed_ms=now_ms,
            lease_until_ms=now_ms,
            state=CLOSED,
            outcome=SETTLED,
            closed_ms=now_ms,
        )
        if self.then == "retry":
            # Due now, with all attempts again: the operator has repaired the cause.
            failed = tuple((index, 1, now_ms) for index in range(len(chosen)))
            return msgspec.structs.replace(row, order=msgspec.structs.replace(order, failed=failed))
        return msgspec.structs.replace(row, order=order, state=CLOSING, transfers=self._given_up(state, chosen, now_ms))

    def _given_up(self, state: KeyStates, chosen: Sequence[tuple[bytes, Parked]], now_ms: int) -> tuple[Transfer, ...]:
        """Reserves rows of the dead log for these messages, with the reasons for which their last attempts failed."""
        stopped: dict[str, dict[tuple[int, int], str | None]] = {ATTEMPTS: {}, REJECTED: {}}
        for digest, parked in chosen:
            kind, detail = failure_of(state, digest, parked, self.log.group)
            stopped[kind][parked.row_no, parked.in_row] = detail
        return tuple(
            reserve(
                self.log.context,
                kind=kind,
                log=self.log.group.dead_log,
                picks=tuple(details),
                expires_ms=now_ms + DEAD_RETENTION_MS,
                details=tuple(details.values()) if any(details.values()) else (),
            )
            for kind, details in stopped.items()
            if details
        )


def failure_of(state: KeyStates, digest: bytes, parked: Parked, group: Group) -> tuple[str, str | None]:
    """Returns why a stopped message failed last, as the reason and the detail of a dead letter."""
    stop = state.stop_of(digest, parked)
    # Without a note, which there is no room for in a state with many stopped keys, the attempts tell most likely.
    rejected = parked.attempt < group.max_attempts if stop is None else stop.rejected
    return REJECTED if rejected else ATTEMPTS, None if stop is None else stop.detail
