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

    def park(self, index: int, attempt: int, due_ms: int, *, suspect: bool) -> None:
        """Parks a message again; as a suspect, unless its key stops."""
        self.failed.append((index, attempt, due_ms))
        if suspect and due_ms < STOPPED_MS:
            self.suspects.append(index)


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
        parked = _released_until(asked, group, now_ms, released=released, alone=alone)
        if parked is not None:
            # A suspect that is released stays one: its consumer may not have begun with it.
            outcome.park(index, message.attempt, parked, suspect=asked.ended or alone)
            failed.add(digest)
        elif _judge(outcome, index, message.attempt, asked, group, policy, now_ms):
            failed.add(digest)
    return outcome


def _released_until(asked: ParsedSettlement, group: Group, now_ms: int, *, released: bool, alone: bool) -> int | None:
    """Returns the time of a message that is parked again without an attempt being counted; None for others. ``alone``:
    it is a suspect that was pulled alone."""
    if asked.ended and not alone:
        return now_ms + group.redelivery_ms
    return now_ms if released else None


def _judge(
    outcome: OrderedOutcome,
    index: int,
    attempt: int,
    asked: ParsedSettlement,
    group: Group,
    policy: RetryPolicy,
    now_ms: int,
) -> bool:
    """Adds what its consumer decided about a message to ``outcome``. Returns whether the message is parked again; it is
    acknowledged otherwise, or becomes a dead letter."""
    if index in asked.retried and attempt < group.max_attempts:
        due_ms = now_ms + asked.delays_ms.get(index, policy.delay_ms(attempt))
        outcome.park(index, attempt + 1, due_ms, suspect=asked.ended)
        return True
    if index not in asked.retried and index not in asked.dead:
        return False
    if group.when_dead == "stop":
        outcome.stopped.append(index)
        outcome.park(index, attempt, STOPPED_MS, suspect=False)
        return True
    (outcome.rejected if index in asked.dead else outcome.spent).append(index)
    return False
