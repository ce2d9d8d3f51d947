"""Judges delayed messages by their effects: how often and when each comes into a queue, whatever the records of wheels,
buckets and cancels say."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.buckets import LATEST_MS, LATEST_PRECISE_MS
from tests.simulation.dates import RequestedDue
from tests.simulation.facts import LogName, Pick, RowFact
from tests.simulation.plan import DAY_MS
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit

_MINUTE_MS = 60_000
_STORED_MS = 5_000
"""The calls between the step of a wheel that hands a message over and the store of its row."""


class SentMessage(NamedTuple):
    """A message in a subject of a generation, by its body, which no other message has."""

    subject: str
    generation: int
    body: str


@dataclass
class DelayedEffects:
    """``earliest_ms`` and ``latest_ms``: the first and the last due time that senders have requested for each message.
    ``accepted_ms``: when its sender got the answer. ``came``: how often it came into a queue; ``cancelled``: the copies
    whose cancellation was answered."""

    audit: "StoreAudit"
    earliest_ms: dict[str, int] = field(default_factory=dict)
    latest_ms: dict[str, int] = field(default_factory=dict)
    accepted_ms: dict[SentMessage, int] = field(default_factory=dict)
    came: dict[SentMessage, int] = field(default_factory=dict)
    cancelled: dict[SentMessage, set[tuple[str, Pick]]] = field(default_factory=dict)

    def requested(self, body: str, wait: RequestedDue | None, now_ms: int) -> None:
        """Records that a message is about to be sent, or moved, with this due time."""
        due_ms = 0 if wait is None else wait.due_ms(now_ms)
        self.earliest_ms[body] = min(self.earliest_ms.get(body, due_ms), due_ms)
        slack_ms = _MINUTE_MS if wait is not None and wait.minute else 0
        self.latest_ms[body] = max(self.latest_ms.get(body, 0), due_ms + slack_ms)

    def accepted(self, sent: SentMessage) -> None:
        """Records that the sender of a delayed message got its answer."""
        self.accepted_ms.setdefault(sent, self.audit.world.now_ms)

    def tell_cancelled(self, sent: SentMessage, position: tuple[str, Pick]) -> None:
        """Judges the answer that the copy at this position is cancelled: it has not come, and must not come (8)."""
        self.cancelled.setdefault(sent, set()).add(position)
        self._check_number(sent)

    def stored(self, name: LogName, fact: RowFact) -> None:
        """Judges a row of a queue: its messages are due (7), not late in a run without faults (7), and each comes once
        for each time that it was stored (9), without those that were cancelled (8)."""
        for message in fact.messages:
            sent = SentMessage(name.subject, name.generation, message.body or "")
            self.came[sent] = self.came.get(sent, 0) + 1
            due_ms = self.earliest_ms.get(sent.body, 0)
            if due_ms > self.audit.soon:
                raise Violation("7", f"message {sent.body[:20]} comes {due_ms - self.audit.world.now_ms} ms early")
            self._check_late(sent)
            self._check_number(sent)

    def check_came(self, given_up: set[str]) -> None:
        """Checks at the end of a run that each accepted message has come, unless somebody wanted to cancel it (7)."""
        plan = self.audit.world.plan
        days = plan.quiet_days or (plan.delays is not None and plan.delays.reach_ms > DAY_MS)
        if plan.faults.damage or plan.retention_seconds == 60 or "retention" in plan.moves or days:
            return  # a message may be unreadable, or expire on its way
        for sent in self.accepted_ms:
            gone = self.audit.gone(f"{sent.subject}~{sent.generation}/0")
            if sent not in self.came and sent.body not in given_up and not gone:
                raise Violation("7", f"message {sent.body[:20]} was accepted, and never came into a queue")

    def _check_late(self, sent: SentMessage) -> None:
        world, accepted_ms = self.audit.world, self.accepted_ms.get(sent)
        delays = world.plan.delays
        if accepted_ms is None or delays is None or not delays.prompt or not world.lively:
            return
        late_ms = world.now_ms - max(accepted_ms, self.latest_ms[sent.body])
        if late_ms > (LATEST_PRECISE_MS if delays.precise else LATEST_MS) + _STORED_MS:
            raise Violation("7", f"message {sent.body[:20]} comes {late_ms} ms late, in a run without faults")

    def _check_number(self, sent: SentMessage) -> None:
        came, cancelled = self.came.get(sent, 0), len(self.cancelled.get(sent, ()))
        copies = self.audit.copies.get(sent, 0)
        if came > copies:
            raise Violation("9", f"message {sent.body[:20]} comes {came} times, it was sent {copies} times")
        if came + cancelled > copies:
            raise Violation("8", f"message {sent.body[:20]} comes {came} times, {cancelled} of {copies} are cancelled")
