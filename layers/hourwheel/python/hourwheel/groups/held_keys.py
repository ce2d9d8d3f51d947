"""Adds the held keys and the parked messages of an ordered group to its lag."""

from hourwheel.errors import Corrupt
from hourwheel.groups.stopped_keys import failure_of
from hourwheel.model.lag import HeldKey, HeldKeys, Lag
from hourwheel.model.messages import Message
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.key_states import ParkedCounts
from hourwheel.pull_log.keyed_rows import KeyedMessages
from hourwheel.pull_log.ordered_rows import STOPPED_MS, Parked
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.times import rfc3339

_NAMED = 100  # an answer names at most this many keys: each costs a read


def oldest_parked_ms(log: PullLog, counts: ParkedCounts) -> int | None:
    """Returns when the oldest parked message of a log was accepted (Unix milliseconds); None if none is parked. Reads
    its row."""
    row = None if counts.oldest_row is None else log.source.get(counts.oldest_row)
    return None if row is None or row.filler else row.at_ms


def with_parked(lag: Lag, logs: list[PullLog], key_states: KeyStateCache, *, named: int = _NAMED) -> Lag:
    """Adds the parked messages to the lag of an ordered group: those that failed are retried or back off, and the
    others wait for their turn. Names the first ``named`` held keys, each of which costs a read, as does the oldest
    parked message of each log."""
    held, oldest = HeldKeys(), [] if lag.oldest_at is None else [lag.oldest_at]
    now_ms = logs[0].context.clock.now_ms()
    waiting: dict[int, int] = {}
    for log in logs:
        state = key_states.current(log)
        counts = key_states.counts(log, now_ms)
        held.keys += counts.held
        held.stopped += counts.stopped
        held.parked += state.total
        if log.queue is None:
            lag.retrying += counts.waiting
        else:
            waiting[log.queue] = waiting.get(log.queue, 0) + counts.waiting
            if state.held_keys >= log.group.max_held and log.queue not in held.full:
                held.full.append(log.queue)
            if not state.room and log.queue not in held.full_of_messages:
                held.full_of_messages.append(log.queue)
        if (oldest_ms := oldest_parked_ms(log, counts)) is not None:
            oldest.append(rfc3339(oldest_ms))
        lag.retrying += counts.due
        lag.backing_off += counts.backing_off
        for head, behind, digest in state.held()[: named - len(held.first)]:
            key = _named(log, key_states, head, behind)
            if key.stopped:
                key.reason, key.detail = failure_of(state, digest, head, log.group)
            held.first.append(key)
    for queue in lag.queues:
        queue.waiting += waiting.get(queue.queue, 0)
    lag.waiting += sum(waiting.values())
    lag.oldest_at = min(oldest, default=None)
    lag.held = held
    return lag


def _named(log: PullLog, key_states: KeyStateCache, head: Parked, behind: int) -> HeldKey:
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
