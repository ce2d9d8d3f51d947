"""Adds the held keys and the parked messages of an ordered group to its lag."""

from msgspec import UNSET

from hourwheel.errors import Corrupt
from hourwheel.model.lag import HeldKey, HeldKeys, Lag
from hourwheel.model.messages import Message
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.key_states import KeyStates
from hourwheel.ordered.stopped_keys import failure_of
from hourwheel.pull_log.keyed_rows import KeyedMessages
from hourwheel.pull_log.ordered_rows import STOPPED_MS, Parked
from hourwheel.pull_log.parked_counts import ParkedCounts
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.times import rfc3339


def oldest_parked_ms(log: PullLog, counts: ParkedCounts) -> int | None:
    """Returns when the oldest parked message of a log was accepted (Unix milliseconds); None if none is parked. Reads
    its row."""
    row = None if counts.oldest_row is None else log.source.get(counts.oldest_row)
    return None if row is None or row.filler else row.at_ms


def add_parked(key_states: KeyStateCache, log: PullLog, lag: Lag, named: int) -> None:
    """Adds the parked messages of one log to the lag of its ordered group: those that failed are retried or back off,
    and the others wait for their turn. Names held keys until the lag names ``named`` of them. Each costs a read, as
    does the oldest parked message."""
    now_ms = log.context.clock.now_ms()
    state = key_states.current(log)
    counts = key_states.counts(log, now_ms)
    oldest_ms = oldest_parked_ms(log, counts)
    lag.held = held = HeldKeys() if lag.held is UNSET else lag.held
    # Read before anything is added: a log whose cell fails meanwhile is left out as a whole.
    first = [_named(log, key_states, state, *key) for key in state.held()[: named - len(held.first)]]
    held.keys += counts.held
    held.stopped += counts.stopped
    held.parked += state.total
    if log.queue is None:
        lag.retrying += counts.waiting
    else:
        _add_to_queue(lag, held, log, state, counts.waiting)
    lag.retrying += counts.due
    lag.backing_off += counts.backing_off
    if oldest_ms is not None:
        lag.oldest_at = min(lag.oldest_at or rfc3339(oldest_ms), rfc3339(oldest_ms))
    held.first += first


def _add_to_queue(lag: Lag, held: HeldKeys, log: PullLog, state: KeyStates, waiting: int) -> None:
    """Adds the parked messages that wait for their turn in a queue, and names the queue if it is full."""
    assert log.queue is not None
    lag.waiting += waiting
    for queue in lag.queues:
        queue.waiting += waiting if queue.queue == log.queue else 0
    if state.held_keys >= log.group.max_held and log.queue not in held.full:
        held.full.append(log.queue)
    if not state.room and log.queue not in held.full_of_messages:
        held.full_of_messages.append(log.queue)


def _named(
    log: PullLog, key_states: KeyStateCache, state: KeyStates, head: Parked, behind: int, digest: bytes
) -> HeldKey:
    """Describes the key of this digest, of which ``head`` is the first message."""
    key = _key_of(log, key_states, head, behind)
    if key.stopped:
        key.reason, key.detail = failure_of(state, digest, head, log.group)
    return key


def _key_of(log: PullLog, key_states: KeyStateCache, head: Parked, behind: int) -> HeldKey:
    stopped = head.due_ms == STOPPED_MS
    due_at = None if stopped else rfc3339(head.due_ms)
    message = _read(log, key_states, head)
    if message is None:
        return HeldKey(None, log.queue or 0, 0, head.attempt, stopped, due_at, behind)
    return HeldKey(message.key, message.queue or 0, message.offset or 0, head.attempt, stopped, due_at, behind)


def _read(log: PullLog, key_states: KeyStateCache, parked: Parked) -> Message | None:
    """Returns a parked message with all its fields; None if it has expired or cannot be read."""
    row = log.source.get(parked.row_no)
    if row is None or row.filler:
        return None
    try:
        keyed = key_states.decoded_rows.decoded(log.source.name, parked.row_no, row, log.batches)
        (message,) = KeyedMessages(keyed, [parked.in_row], parked.attempt).messages(log.queue)
    except Corrupt:
        return None
    return message
