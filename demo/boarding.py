"""Accounts for the boarding calls: each must be received once, none early, and no cancelled call."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from demo.flights import Flight


@dataclass(frozen=True)
class Call:
    """A boarding call, due at the scheduled departure of its flight. The demo cancels the call of a ``cancelled``
    flight."""

    id: str
    key: str
    due_ms: int
    cancelled: bool


@dataclass(frozen=True)
class Seen:
    """A call that the gate received: its position in the queue, its due time, and the time of receipt (``at_ms``)."""

    call: str
    queue: int
    offset: int
    attempt: int
    due_ms: int
    at_ms: float


@dataclass(frozen=True)
class Account:
    """The account of the boarding calls. ``cancelled``: the server confirmed the cancel. ``too_late``: the server
    answered that the call was dispatched already. ``double``: calls that are in the queue more than once.
    ``redelivered``: receipts of a position after the first one."""

    calls: int
    cancelled: int
    too_late: int
    delivered: int
    redelivered: int
    early: int
    double: int
    missing: int
    delivered_though_cancelled: int
    wrong: tuple[str, ...]


def timetable(flights: Iterable[Flight], begin_ms: int, ms_a_minute: float) -> list[Call]:
    """Returns the calls of the flights in the order of their due times, for a month that begins at ``begin_ms``."""
    calls = [
        Call(flight.name, flight.carrier, begin_ms + round(flight.minute * ms_a_minute), flight.cancelled)
        for flight in flights
    ]
    return sorted(calls, key=lambda call: call.due_ms)


def account(calls: Sequence[Call], answers: Mapping[str, str], seen: Sequence[Seen]) -> Account:
    """Returns the account. ``answers``: the states that the server answered to cancels, by the ids of the calls."""
    due_ms = {call.id: call.due_ms for call in calls}
    unwanted = {call.id for call in calls if call.cancelled}
    cancelled = {name for name, state in answers.items() if state == "cancelled"}
    too_late = {name for name, state in answers.items() if state == "dispatched"}
    positions: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for receipt in seen:
        positions[receipt.call].add((receipt.queue, receipt.offset))
    early = {receipt.call for receipt in seen if receipt.at_ms < due_ms.get(receipt.call, receipt.due_ms)}
    double = {name for name, of_call in positions.items() if len(of_call) > 1}
    missing = due_ms.keys() - cancelled - positions.keys()
    ghosts = cancelled & positions.keys()
    counts = {
        "received before they were due": len(early),
        "in the queue more than once": len(double),
        "never received": len(missing),
        "received though they were cancelled": len(ghosts),
        "to be cancelled without an answer": len(unwanted - cancelled - too_late),
        "cancelled although their flights left": len(answers.keys() - unwanted),
        "due at another time than they were sent for": sum(
            receipt.due_ms != due_ms.get(receipt.call) for receipt in seen
        ),
        "received that nobody sent": len(positions.keys() - due_ms.keys()),
    }
    return Account(
        calls=len(due_ms),
        cancelled=len(cancelled),
        too_late=len(too_late),
        delivered=len(positions),
        redelivered=len(seen) - sum(map(len, positions.values())),
        early=len(early),
        double=len(double),
        missing=len(missing),
        delivered_though_cancelled=len(ghosts),
        wrong=tuple(f"{count:,} {what}" for what, count in counts.items() if count),
    )
