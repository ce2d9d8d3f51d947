"""Implements cancellers: actors that look delayed messages up, cancel them, or move them to another time."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hourwheel.delay.lists.delayed_request import DelayedRequest
from hourwheel.errors import Rejected
from hourwheel.model.messages import ScheduledMessage
from tests.simulation.actors import Actor
from tests.simulation.choices import Choices
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
            acts = ("look", "cancel", "cancel", "reschedule", *self.world.plan.choices)
            self.intent = (ticket, self.rng.choice(acts))
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

    def cancel_chosen(self, ticket: Ticket) -> bool:
        """Cancels all messages of the subject that are due when this one is, by as many calls as that takes."""
        return self._change_chosen("cancel chosen", ticket, None)

    def move_chosen(self, ticket: Ticket) -> bool:
        """Moves all messages of the subject that are due when this one is to a later time."""
        later_ms = ticket.due_ms + self.rng.choice((3_000, 600_000))
        return self._change_chosen("move chosen", ticket, RequestedDue(at_ms=later_ms))

    def _change_chosen(self, name: str, ticket: Ticket, requested: RequestedDue | None) -> bool:
        choices = Choices(self.history, ticket, requested)
        request = DelayedRequest(ticket.due_ms, ticket.due_ms + 1, limit=3)
        deliver_at = None if requested is None else requested.time["deliver_at"]
        choices.begin()
        try:
            while True:
                change = partial(self.deployment.delayed.change, ticket.subject, request, deliver_at)
                verb, page = self.ask(name, change, subject=ticket.subject, due_ms=ticket.due_ms)
                if page is None:
                    return isinstance(verb.error, Rejected)
                choices.answered(verb, page)
                if page.next is None:
                    choices.ended()
                    return True
                request = request._replace(after=page.next)
        finally:
            choices.note()  # also where the process has crashed

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
