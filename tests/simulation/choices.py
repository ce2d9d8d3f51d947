"""Judges changes of all delayed messages that a choice takes: each answer is true, and none that waited is left."""

from dataclasses import dataclass, field

from hourwheel.model.pages import ChosenPage
from tests.simulation.buckets import BucketHistory
from tests.simulation.dates import RequestedDue, parsed
from tests.simulation.facts import Pick
from tests.simulation.history import History, Ticket
from tests.simulation.world import Verb, Violation


@dataclass
class Choices:
    """One request that concerns the messages of a subject that are due when ``ticket`` is."""

    history: History
    ticket: Ticket
    requested: RequestedDue | None
    waited: set[tuple[str, Pick]] = field(default_factory=set)

    def begin(self) -> None:
        """Notes the messages that wait, and what is about to happen to them."""
        self.waited = self._waiting()
        bodies = [self._body(*position) for position in self.waited]
        if self.requested is not None:
            self.history.waits(bodies, [self.requested] * len(bodies), self.history.audit.world.now_ms)
        self.note()

    def note(self) -> None:
        """Notes the messages that somebody has requested to cancel: some may have come since the request began."""
        if self.requested is not None:
            return
        self.history.given_up.update(self._body(*position) for position in self.waited)
        for name, history in self.history.audit.buckets.items():
            changes = [pick for pick, change in history.changes.items() if change.due_ms is None]
            cancelled = [pick for pick in changes if self._is_chosen(history, pick)]
            self.history.given_up.update(self._body(name, pick) for pick in cancelled)

    def answered(self, verb: Verb, page: ChosenPage) -> None:
        for answer in page.messages:
            ticket = Ticket(answer.scheduled_id, "", answer.subject, parsed(answer.deliver_at))
            ticket = Ticket(answer.scheduled_id, self._body(*ticket.position), answer.subject, ticket.due_ms)
            self.history.answered(verb, ticket, self.history.known(ticket), answer)
            self.history.tickets.append(ticket)

    def ended(self) -> None:
        """Judges the end of the answers: no message that waited at the beginning still does (8). A message that is due
        is about to be handed over: no move takes it."""
        is_due = self.ticket.due_ms <= self.history.audit.soon
        left = self.waited & self._waiting()
        if left and not (is_due and self.requested is not None):
            raise Violation("8", f"all messages of the choice are answered to be changed, {sorted(left)} are left")

    def _waiting(self) -> set[tuple[str, Pick]]:
        audit = self.history.audit
        return {
            (name, pick)
            for name, history in audit.buckets.items()
            if history.open
            for pick in history.waiting()
            if pick not in history.changes and self._is_chosen(history, pick)
        }

    def _is_chosen(self, history: BucketHistory, pick: Pick) -> bool:
        plan = history.plan(pick)
        if plan.member is not None or plan.subject != self.ticket.subject or plan.due_ms(pick[1]) != self.ticket.due_ms:
            return False
        due_ms = max(self.ticket.due_ms, history.bucket.start_ms)
        return due_ms == self.ticket.due_ms and not self.history.audit.gone(f"{plan.subject}~{plan.generation}/0")

    def _body(self, name: str, pick: Pick) -> str:
        rows = self.history.audit.rows(self.history.audit.bucket(name).bucket.log)
        return rows[pick[0]].messages[pick[1]].body or ""
