"""Claims of ordered groups: one conditional put, as every claim. The row says what it takes and what it parks.

A claim is safe whatever else happens meanwhile, because what it has read stays true. A settled message stays settled, a
parked one stays parked until a row behind takes it, and a row behind would have the number that this claim needs.
"""

from contextlib import nullcontext, suppress

from hourwheel.errors import Broken, Unavailable
from hourwheel.faults import unreadable
from hourwheel.logs.cas import Versioned
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.key_states import KeyStates
from hourwheel.ordered.selection import ClaimLimits, OrderedSelection
from hourwheel.pull_log.claiming.claims import Claim, ClaimRequest, ClaimResult, Nothing
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import PASSED, PullRow

_RACES = 100  # a claim that lost this often gives up, and its pull looks again


def claim(key_states: KeyStateCache, log: PullLog, request: ClaimRequest) -> ClaimResult:
    """Claims messages whose turn it is, and returns the claim. See ``PullLog.claim``.

    Without a message to hand out, a row is written only to pass over many messages of keys in flight, empty rows, or
    messages that have expired or cannot be read.
    """
    limits = ClaimLimits(request.max_messages, request.max_bytes, request.strict_bytes, request.share, request.suspects)
    state = key_states.opened(log)
    for race in range(min(_RACES, request.races)):
        if request.only_row is not None and state.row_no != request.only_row:
            return ClaimResult(None, limited=True)
        now_ms = log.context.clock.now_ms()
        chosen = OrderedSelection(log, state, limits, now_ms, key_states.decoded_rows)
        chosen.select()
        if not chosen.writes:
            return _found_nothing(key_states, log, chosen)
        row: PullRow = _row(log, chosen, request)
        outcome = log.record(state.row_no).swap(None, row, token=row.claim, expires_ms=row.garbage_ms)
        if (written := outcome.written) is not None:
            return _claimed(key_states, log, written, chosen)
        log.context.meter.record("ClaimConflicts", 1)
        state = _behind_winner(key_states, log, state, None if race > 1 else outcome.current)
    return ClaimResult(None, limited=True)


def _found_nothing(key_states: KeyStateCache, log: PullLog, chosen: OrderedSelection) -> ClaimResult:
    key_states.publish(log, chosen.state)
    left = chosen.limited or chosen.held_back or chosen.suspects_wait
    return _result(None, chosen, nothing=None if left else Nothing(chosen.state.row_no, chosen.uncovered_row))


def _claimed(
    key_states: KeyStateCache, log: PullLog, stored: Versioned[PullRow], chosen: OrderedSelection
) -> ClaimResult:
    state, suspect = chosen.state, chosen.suspect
    claimed = Claim(state.row_no, stored, (), chosen.size, chosen.taken, chosen.retries, suspect=suspect)
    _stored(key_states, log, state, stored, chosen)
    chosen.limited = chosen.limited or not chosen.count
    return _result(claimed if chosen.count else None, chosen)


def _behind_winner(
    key_states: KeyStateCache, log: PullLog, state: KeyStates, winner: Versioned[PullRow] | None
) -> KeyStates:
    """Returns the state behind the row of another claim that came first; reads it where that row is not known."""
    if winner is None:
        return key_states.opened_anew(log)
    assert isinstance(winner.value, OrderedRow)
    state.follow(state.row_no, winner.value, winner.token)
    return state


def _result(claim: Claim | None, chosen: OrderedSelection, *, nothing: Nothing | None = None) -> ClaimResult:
    return ClaimResult(
        claim,
        limited=chosen.limited,
        nothing=nothing,
        held_back=chosen.held_back,
        suspects_wait=chosen.suspects_wait,
    )


def has_turn(key_states: KeyStateCache, log: PullLog) -> bool:
    """Returns whether a claim would find a message now. Strongly consistent."""
    return _look(key_states, log).writes


def settled_rows(key_states: KeyStateCache, log: PullLog) -> int | None:
    """Returns the number of rows, from the first one on, of which the group has settled all messages; None while it
    holds messages of the log or may claim some. Strongly consistent."""
    chosen = _look(key_states, log)
    if chosen.writes or chosen.limited or chosen.state.parked or chosen.state.open:
        return None
    return max(chosen.uncovered_row, log.source.trimmed())


def _look(key_states: KeyStateCache, log: PullLog) -> OrderedSelection:
    now_ms = log.context.clock.now_ms()
    chosen = OrderedSelection(log, key_states.current(log), ClaimLimits(1, 1, False), now_ms, key_states.decoded_rows)
    chosen.select()
    return chosen


def _row(log: PullLog, chosen: OrderedSelection, request: ClaimRequest) -> OrderedRow:
    covered = chosen.covered
    row = OrderedRow(
        consumer=request.consumer,
        first=covered.first,
        counts=tuple(covered.counts),
        end=covered.end,
        end_seq=covered.seq,
        claim=log.context.ids.token(),
        claimed_ms=chosen.now_ms,
        lease_until_ms=chosen.now_ms + request.lease_ms,
        order=chosen.order,
    )
    return row if chosen.count else row.closed(PASSED, chosen.now_ms)


def _stored(
    key_states: KeyStateCache, log: PullLog, state: KeyStates, stored: Versioned[PullRow], chosen: OrderedSelection
) -> None:
    row = stored.value
    assert isinstance(row, OrderedRow)
    state.follow(state.row_no, row, stored.token, chosen.divided)
    # A claim that is stored must be handed out: a snapshot that is not saved costs later readers some rows. A failure
    # within a transaction undoes the claim, too.
    with nullcontext() if log.context.later is not None else suppress(Unavailable, Broken):
        key_states.save(log, state)
    key_states.claimed(log, state, Versioned(row, stored.token, stored.stored))
    for row_no, (count, error) in chosen.source.unreadable.items():
        unreadable(log.context, log.source.name, row_no, count, error)
