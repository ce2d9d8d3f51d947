"""Implements cancellers: actors that look delayed messages up, cancel them, or move them to another time."""

from collections.abc import Callable
from dataclasses import dataclass

from hourwheel.errors import Rejected
from hourwheel.model.messages import ScheduledMessage
from tests.simulation.actors import Actor
from tests.simulation.dates import RequestedDue
from tests.simulation.history import Ticket


@dataclass
class Canceller(Actor):
    """An actor that looks delayed messages up, cancels them, and moves them to another time."""

    paced = False
    intent: tuple[Ticket, str] | None = None

    def work(self) -> None:
        self.nap(2_000)
        tickets = self.history.tickets
        if not tickets:
            return
        if self.intent is None or self.rng.random() < 0.3:
            some = [self.rng.choice(tickets) for _ in range(4)]
            ticket = min(some, key=lambda ticket: abs(ticket.due_ms - self.world.now_ms))
            self.intent = (ticket, self.rng.choice(("look", "cancel", "cancel", "reschedule")))
        ticket, what = self.intent
        if getattr(self, what)(ticket):
            self.intent = None

    def look(self, ticket: Ticket) -> bool:
        return self._asked("look", ticket, lambda: self.deployment.delayed.get(ticket.scheduled_id))

    def cancel(self, ticket: Ticket) -> bool:
        self.history.given_up.add(ticket.body)
        return self._asked("cancel", ticket, lambda: self.deployment.delayed.cancel(ticket.scheduled_id))

    def reschedule(self, ticket: Ticket, requested: RequestedDue | None = None) -> bool:
        """Moves the message to another time; draws the time if there is none."""
        began_ms = self.earliest_ms()
        requested = requested or self.dates.draw(began_ms)
        self.history.waits([ticket.body], [requested], began_ms)
        return self._asked(
            "reschedule",
            ticket,
            lambda: self.deployment.delayed.reschedule(ticket.scheduled_id, **requested.time),
            requested=requested,
        )

    def _asked(
        self, name: str, ticket: Ticket, call: Callable[[], ScheduledMessage], requested: RequestedDue | None = None
    ) -> bool:
        before, began_ms = self.history.known(ticket), self.earliest_ms()
        verb, answer = self.ask(name, call, handle=ticket.scheduled_id, requested=requested.text if requested else "")
        if answer is None:
            self.history.refused(verb, ticket)
            return isinstance(verb.error, Rejected)
        self.history.answered(verb, ticket, before, answer)
        if requested is not None and answer.state == "moved":
            # An equal request by a process whose clock is ahead may have decided the change.
            latest_ms = self.world.now_ms + self.world.plan.skew_ms
            self.history.moved(ticket, requested, answer, (began_ms, latest_ms))
        return True
