"""Cancellers: actors that look delayed messages up, cancel them, or move them to another time."""

from collections.abc import Callable
from dataclasses import dataclass

from hourwheel.errors import Rejected
from hourwheel.model import ScheduledMessage
from tests.simulation.actors import Actor
from tests.simulation.dates import Wait
from tests.simulation.history import Ticket


@dataclass
class Canceller(Actor):
    """Looks delayed messages up, cancels them, moves them to another time."""

    paced = False
    wish: tuple[Ticket, str] | None = None

    def work(self) -> None:
        self.nap(2_000)
        tickets = self.history.tickets
        if not tickets:
            return
        if self.wish is None or self.rng.random() < 0.3:
            some = [self.rng.choice(tickets) for _ in range(4)]
            ticket = min(some, key=lambda ticket: abs(ticket.due_ms - self.world.now_ms))
            self.wish = (ticket, self.rng.choice(("look", "cancel", "cancel", "reschedule")))
        ticket, what = self.wish
        if getattr(self, what)(ticket):
            self.wish = None

    def look(self, ticket: Ticket) -> bool:
        return self._asked("look", ticket, lambda: self.cell.scheduled(ticket.handle))

    def cancel(self, ticket: Ticket) -> bool:
        self.history.given_up.add(ticket.body)
        return self._asked("cancel", ticket, lambda: self.cell.cancel(ticket.handle))

    def reschedule(self, ticket: Ticket, wish: Wait | None = None) -> bool:
        """Moves the message to another time, which is drawn if it is not given."""
        began_ms = self.earliest_ms()
        wish = wish or self.dates.draw(began_ms)
        self.history.waits([ticket.body], [wish], began_ms)
        return self._asked("reschedule", ticket, lambda: self.cell.reschedule(ticket.handle, **wish.fields), wish=wish)

    def _asked(self, name: str, ticket: Ticket, call: Callable[[], ScheduledMessage], wish: Wait | None = None) -> bool:
        known, began_ms = self.history.known(ticket), self.earliest_ms()
        verb, answer = self.ask(name, call, handle=ticket.handle, wish=wish.text if wish else "")
        if answer is None:
            self.history.refused(verb, ticket)
            return isinstance(verb.error, Rejected)
        self.history.answered(verb, ticket, known, answer)
        if wish is not None and answer.state == "moved":
            # An equal request by a process whose clock is ahead may have decided the change.
            latest_ms = self.world.now_ms + self.world.plan.skew_ms
            self.history.moved(ticket, wish, answer, (began_ms, latest_ms))
        return True
