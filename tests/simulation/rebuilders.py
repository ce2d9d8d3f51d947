"""Rebuilds a store from a complete archive, and checks that it contains what the old store contained."""

from functools import partial

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.rebuild import rebuild
from hourwheel.context import Context
from hourwheel.deployment.deployment import Deployment
from hourwheel.logs.large_batches import messages_of
from hourwheel.model.groups import Group
from hourwheel.model.pulls import PullRequest
from tests.simulation.actors import Actor
from tests.simulation.audit import StoreAudit
from tests.simulation.checker import living_groups, logs_of
from tests.simulation.facts import LogName
from tests.simulation.orders import OrderedHistory
from tests.simulation.timers import Alarms, SimulatedTimers
from tests.simulation.world import Silence, SimulatedIds, Violation

_GAP = 1_000


def rebuild_and_judge(actor: Actor) -> None:
    """Rebuilds an empty store. Checks that no archived row is missing there, and that no settled message comes
    again."""
    process = actor.process
    silence = Silence(process)
    context = Context(
        store=MemoryStore(),
        blobs=MemoryBlobs(),
        clock=process,
        ids=SimulatedIds(actor.rng),
        wakeups=silence,
        meter=silence,
        timers=SimulatedTimers(process, Alarms(actor.world)),
        settings=actor.machine.settings,
    )
    deployment = Deployment(context)
    verb, report = actor.ask("rebuild", partial(rebuild, context, actor.machine.archive, gap=_GAP))
    if report is None:
        raise Violation("9", f"the store cannot be rebuilt from its archive: {verb.error}")
    _judge_rows(actor, context)
    for group in living_groups(actor.history.audit):
        _judge_group(actor, deployment, group)


def _judge_rows(actor: Actor, context: Context) -> None:
    """Checks that each row of a queue has its former number, messages and sequences."""
    audit = actor.history.audit
    for log, facts in sorted(audit.logs.items()):
        if LogName.parse(log).kind != "queue" or audit.lost(log):
            continue
        for number, fact in sorted(facts.items()):
            if fact.row.filler or audit.expired(fact) or number < audit.trim_marks.get(log, 0):
                continue
            row = context.log(log).get(number)
            if row is None or row.first_seq != fact.row.first_seq or messages_of(row, context.blobs) != fact.messages:
                raise Violation("9", f"row {number} of {log} is rebuilt as {row}, it was {fact.row}")


def _judge_group(actor: Actor, deployment: Deployment, group: Group) -> None:
    """Checks that a group gets no message that it had settled, and that its offsets go on beyond all former ones."""
    audit = actor.history.audit
    request = PullRequest(consumer="rebuilt", lease_seconds=30)
    verb, result = actor.ask("pull", partial(deployment.pull, group.subject, group.name, request))
    if result is None:
        raise Violation("9", f"group {group.name} cannot be pulled in the rebuilt store: {verb.error}")
    bodies = [message.body for pulled in result.pulls for message in pulled.messages]
    waited = _waited(audit, group)
    again = [body for body in bodies if body not in waited]
    if again:
        raise Violation("9", f"group {group.name} is handed {again} once more by the rebuilt store")
    for log in audit.subjects[group.subject].queue_logs():
        before, after = audit.totals(log), deployment.context.log(log).totals()
        if after.numbers < before.numbers:
            raise Violation("6", f"{log} goes on at {after.numbers} in the rebuilt store, {before.numbers} were given")


def _waited(audit: StoreAudit, group: Group) -> set[str | None]:
    """Returns the bodies of the messages that an ordered group had not been handed: they waited behind a stopped key.
    The store may be rebuilt without the message that stopped the key, if that one has expired."""
    return {
        audit.rows(log)[row].messages[index].body
        for log in logs_of(audit, group)
        if isinstance(history := audit.pull_history(f"{group.member}@{log}"), OrderedHistory)
        for row, index in history.left()
    }
