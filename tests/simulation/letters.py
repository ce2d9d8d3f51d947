"""Judges the lists of dead letters, page by page."""

from functools import partial

from hourwheel.dead_letters.dead import DeadLetters
from hourwheel.model.groups import Group
from hourwheel.model.pages import DeadPage
from tests.simulation.actors import Actor
from tests.simulation.audit import StoreAudit
from tests.simulation.world import Violation

_LIMIT = 2
"""The letters of a page: few, so that most lists have several pages."""


def check_dead(actor: Actor, group: Group) -> int:
    """Returns the number of dead letters, and checks that exactly these are listed."""
    expected = _expected(actor.history.audit, group)
    found = _listed(actor, group)
    if found != expected:
        raise Violation("1", f"group {group.name} lists the dead letters {found}, it has {expected}")
    return len(expected)


def check_broadcast(actor: Actor, consumers: list[Group]) -> None:
    """Checks that a broadcast group lists the dead letters of all of these consumers, one consumer after the other."""
    audit = actor.history.audit
    for _, group in sorted(audit.groups.items()):
        if not group.broadcast or group.deleted or audit.gone(f"{group.subject}~{group.subject_generation}/0"):
            continue
        members = [
            each
            for each in consumers
            if (each.subject, each.subject_generation, each.shared_name)
            == (group.subject, group.subject_generation, group.name)
        ]
        expected = [body for each in sorted(members, key=_consumer) for body in _expected(audit, each)]
        found = _listed(actor, group)
        if found != expected:
            raise Violation("1", f"broadcast group {group.name} lists the dead letters {found}, it has {expected}")


def _consumer(group: Group) -> str:
    return group.consumer


def _expected(audit: StoreAudit, group: Group) -> list[str | None]:
    """Returns the bodies of the dead letters, in their order, from the stored rows."""
    done = audit.dead.get(group.dead_log, {})
    return [
        message.body
        for number, fact in sorted(audit.rows(group.dead_log).items())
        if not fact.row.filler and not audit.expired(fact)
        for index, message in enumerate(fact.messages)
        if number not in done or index not in done[number].done
    ]


def _listed(actor: Actor, group: Group) -> list[str | None]:
    found, after = list[str | None](), None
    while True:
        _, page = actor.ask("dead", partial(_page, actor, group, after))
        found += [message.body for message in page.messages] if page else []
        after = page.next if page else None
        if after is None:
            return found


def _page(actor: Actor, group: Group, after: str | None) -> DeadPage:
    if not group.consumer:
        return actor.deployment.dead_letters(group.subject, group.name).page(after=after, limit=_LIMIT)
    subject = actor.deployment.registry.subject(group.subject)
    return DeadLetters(actor.deployment.context, subject, group).page(after=after, limit=_LIMIT)
