"""Judges traces by the history of the run: each pull of a message, its consumer and its time."""

from functools import partial

from hourwheel.model.groups import Group
from hourwheel.model.traces import GroupTrace
from hourwheel.times import rfc3339
from hourwheel.trace.messages import SearchSpan
from tests.simulation.actors import Actor
from tests.simulation.audit import StoreAudit
from tests.simulation.facts import LogName
from tests.simulation.world import Violation

_SAMPLE = 3
"""Messages of each group whose traces are compared."""

_PARTLY_KNOWN = ("unreadable",)


def check_traces(actor: Actor, group: Group) -> None:
    if group.ordered or group.consumer:
        return  # a unit test judges how its messages are traced: they are pulled from their place
    audit = actor.history.audit
    places = [
        (queue, fact.row.first_seq + index)
        for queue in range(audit.subjects[group.subject].queues)
        for _, fact in sorted(audit.rows(f"{group.subject}~{group.subject_generation}/{queue}").items())
        if not fact.row.filler and not audit.expired(fact)
        for index in range(fact.row.count)
    ]
    for queue, offset in actor.rng.sample(places, min(_SAMPLE, len(places))):
        name = f"{queue}:{offset}"
        ask = partial(actor.deployment.messages.trace, group.subject, name, SearchSpan(), group.name)
        _, page = actor.ask("trace", ask, group=group.name)
        if page is not None:
            _compare(audit, group, (queue, offset), page.messages[0].groups[0])


def _compare(audit: StoreAudit, group: Group, place: tuple[int, int], told: GroupTrace) -> None:
    if not told.complete or told.state in _PARTLY_KNOWN:
        return
    seen = sorted(
        (rfc3339(fact.value.claimed_ms) if fact.value.tells_time_of(index) else "", fact.value.consumer)
        for partition, history in audit.pulls.items()
        if partition.startswith(f"{group.member}@{group.subject}~{group.subject_generation}/")
        for fact in history.pulls.values()
        # One pull may hold two copies of a message, retried before and after a seek. Messages that it keeps are behind.
        for index, each in enumerate(fact.positions[: fact.value.size])
        if _place_of(audit, history.source, each) == place
    )
    pulls = sorted((event.at or "", event.consumer or "") for event in told.events if event.event == "pulled")
    if pulls != seen:
        where = f"message {place} of group {group.name}"
        raise Violation("trace", f"{where} was pulled {seen}, its trace says {told.state} and {pulls}")


def _place_of(audit: StoreAudit, source: str, place: tuple[int, int]) -> tuple[int | None, int | None]:
    message, fact = audit.picked(source, place)
    queue = LogName.parse(source).queue
    return (message.queue, message.offset) if queue is None else (queue, fact.row.first_seq + place[1])
