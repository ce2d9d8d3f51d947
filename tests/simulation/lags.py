"""Judges a group's lag by the rows of its logs, at a moment at which no other actor works."""

from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.groups.progress import lag_of
from hourwheel.model.groups import Group
from hourwheel.model.lag import Lag, QueueLag
from hourwheel.pull_log.records import OPEN
from hourwheel.reach.outages import Outages
from tests.simulation.actors import Actor
from tests.simulation.audit import StoreAudit
from tests.simulation.facts import RowFact
from tests.simulation.orders import OrderedHistory
from tests.simulation.pulls import PullHistory
from tests.simulation.world import Violation


def check_lag(actor: Actor, group: Group) -> Lag:
    """Requests the lag of the group, and compares it with the rows."""
    actor.deployment.registry.forget(group.subject)  # otherwise the answer may be the lag of two seconds ago
    _, lag = actor.ask("lag", lambda: _lag(actor, group), group=group.name)
    if lag is None:
        raise Violation("errors", f"without faults, the lag of group {group.name} cannot be read")
    audit = actor.history.audit
    subject = audit.subjects[group.subject]
    flights = 0
    for queue in lag.queues:
        parts = [audit.pull_history(f"{group.member}@{log}") for _, log in subject.parts(queue.queue)]
        if len(parts) == 1:
            _check_waiting(audit, parts[0], queue)
        elif queue.waiting < (count := sum(_count(audit, _waiting(audit, part)) + _passed(part) for part in parts)):
            raise Violation("1", f"{parts[0].partition}: {count} messages wait, the lag says {queue.waiting}")
        flights += _check_flight(parts, queue.in_flight)
    retries = audit.pull_history(f"{group.member}@{group.retry_log}")
    _check_flight([retries], lag.in_flight - flights)
    return lag


def _lag(actor: Actor, group: Group) -> Lag:
    deployment = actor.deployment
    if not group.consumer:
        return deployment.groups.lag(group.subject, group.name)
    subject = deployment.registry.subject(group.subject)
    letters = DeadLetters(deployment.context, subject, group)
    return lag_of(deployment.opener.of(deployment.context, subject, group), deployment.leases, letters, Outages())


def _passed(history: PullHistory) -> int:
    """Returns the number of messages that wait although a claim has passed them: those that are parked, or kept for the
    next pulls of a consumer."""
    kept = sum(len(history.pulls[row].value.kept) for row in history.open)
    return kept + (history.unseen() if isinstance(history, OrderedHistory) else 0)


def _count(audit: StoreAudit, waiting: list[tuple[RowFact, int]]) -> int:
    return sum(fact.row.count - skip for fact, skip in waiting if not fact.row.filler and not audit.expired(fact))


def _check_waiting(audit: StoreAudit, history: PullHistory, told: QueueLag) -> None:
    waiting = _waiting(audit, history)
    count = _count(audit, waiting)
    passed, more = _passed(history), history.may_wait() if isinstance(history, OrderedHistory) else 0
    count += passed
    if told.waiting < count:
        raise Violation("1", f"{history.partition}: {count} messages wait, the lag says {told.waiting}")
    totals = audit.totals(history.source)
    # A row that was given out and is not stored yet may contain any of the missing messages.
    whole = len(waiting) == totals.rows - history.end.row_no
    whole = whole and all(not fact.row.filler and not audit.expired(fact) for fact, _ in waiting)
    # Parked messages of a damaged row wait until a claim reads it.
    whole = whole and not any(fact.damaged for fact in audit.rows(history.source).values())
    exact = waiting and whole and totals.numbers - _offset(waiting[0]) == count - passed
    if exact and not count <= told.waiting <= count + more:
        raise Violation("1", f"{history.partition}: {count} messages wait, the lag says {told.waiting}")


def _waiting(audit: StoreAudit, history: PullHistory) -> list[tuple[RowFact, int]]:
    """Returns the rows that are not claimed completely, each with the number of its claimed messages."""
    rows = sorted(audit.rows(history.source).items())
    end = history.end
    return [(fact, end.index if row == end.row_no else 0) for row, fact in rows if row >= end.row_no]


def _offset(first: tuple[RowFact, int]) -> int:
    fact, skip = first
    return fact.row.first_seq + skip


def _check_flight(parts: list[PullHistory], told: int) -> int:
    """Checks the number of leased messages in the answer, and returns it. Messages of a pull whose transfers are not
    carried out may count or not."""
    pulls = [history.pulls[row].value for history in parts for row in sorted(history.open)]
    leased = sum(len(pull.unsettled()) for pull in pulls if pull.state == OPEN)
    closing = sum(pull.size for pull in pulls if pull.state != OPEN)
    if not leased <= told <= leased + closing:
        raise Violation("4", f"{parts[0].partition}: {leased} messages are leased, the lag says {told}")
    return told
