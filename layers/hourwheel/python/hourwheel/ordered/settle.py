"""Says what a settlement does with the messages of an ordered pull. Reads and writes nothing.

A message that fails is parked at its place. The messages behind it that have its key and belong to the same pull are
released with it, whatever the settlement says of them, and also if it does not name them. None may overtake it. When a
lease ends, all messages that are left are parked as suspects.
"""

from dataclasses import dataclass, field

from hourwheel.model.groups import Group, RetryPolicy
from hourwheel.pull_log.ordered_rows import STOPPED_MS, OrderedRow
from hourwheel.pull_log.parsed_settlements import ParsedSettlement


@dataclass
class OrderedOutcome:
    """The result: the messages that are parked again, as in ``Order.failed``, and those that become dead letters, by
    their index: ``spent`` after their last attempt, ``rejected`` by their consumer. ``stopped`` are those of ``failed``
    that stop their keys, and ``suspects`` those that are parked as suspects. All others are acknowledged."""

    failed: list[tuple[int, int, int]] = field(default_factory=list)
    spent: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)
    stopped: list[int] = field(default_factory=list)
    suspects: list[int] = field(default_factory=list)


def settle_in_order(
    row: OrderedRow, asked: ParsedSettlement, group: Group, policy: RetryPolicy, now_ms: int
) -> OrderedOutcome:
    """Returns what becomes of the messages that ``asked`` names and that are not settled yet, and of those behind a
    message that fails."""
    outcome, failed = OrderedOutcome(), set[bytes]()
    alone = row.order is not None and row.order.suspect
    for index, (digest, message) in enumerate(row.messages()):
        if index in row.settled or not (index in asked.named or digest in failed):
            continue
        released = digest in failed or index in asked.released
        parked: tuple[int, int] | None
        if asked.ended and not alone:
            parked = (message.attempt, now_ms + group.redelivery_ms)
        elif released:
            parked = (message.attempt, now_ms)
        else:
            parked = _judged(outcome, index, message.attempt, asked, group, policy, now_ms)
        if parked is not None:
            attempt, due_ms = parked
            failed.add(digest)
            outcome.failed.append((index, attempt, due_ms))
            # A suspect that is released stays one: its consumer may not have begun with it.
            if due_ms < STOPPED_MS and (asked.ended or (released and alone)):
                outcome.suspects.append(index)
    return outcome


def _judged(
    outcome: OrderedOutcome,
    index: int,
    attempt: int,
    asked: ParsedSettlement,
    group: Group,
    policy: RetryPolicy,
    now_ms: int,
) -> tuple[int, int] | None:
    """Returns the attempt and the time of a message that its consumer parks again; None for one that is acknowledged,
    or becomes a dead letter, which is added to ``outcome``."""
    if index in asked.retried and attempt < group.max_attempts:
        return attempt + 1, now_ms + asked.delays_ms.get(index, policy.delay_ms(attempt))
    if index not in asked.retried and index not in asked.dead:
        return None
    if group.when_dead == "stop":
        outcome.stopped.append(index)
        return attempt, STOPPED_MS
    (outcome.rejected if index in asked.dead else outcome.spent).append(index)
    return None
