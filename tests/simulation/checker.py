"""The end of a run: faults stop, the groups drain, and nothing may be missing."""

from functools import partial

from hourwheel.logs.log import GRACE_MS
from hourwheel.model import Group, PullRequest, Settlement
from tests.simulation.actors import Actor
from tests.simulation.ledger import Ledger
from tests.simulation.world import Violation

_ROUNDS = 40
_PULLS = 60


def drain(actor: Actor, longest_lease_seconds: int) -> None:
    """Consumes everything there is; a group that does not come to rest is a loss (invariant 1)."""
    ledger = actor.history.ledger
    for _ in range(_ROUNDS):
        actor.process.sleep(longest_lease_seconds + 2 * actor.world.plan.skew_ms / 1_000 + 1)
        actor.ask("sweep", actor.cell.sweep)
        for group in living_groups(ledger):
            _consume(actor, group)
        if not unfinished(ledger):
            return
    raise Violation("1", f"after the faults the groups do not come to rest: {unfinished(ledger)[:3]}")


def drain_others(actor: Actor) -> None:
    """Consumes what is not held by anybody."""
    for group in living_groups(actor.history.ledger):
        _consume(actor, group)


def _consume(actor: Actor, group: Group) -> None:
    subject, name = group.subject, group.name
    request = PullRequest(consumer="drain", max_messages=5, lease_seconds=30)
    for _ in range(_PULLS):
        verb, result = actor.ask("pull", lambda: actor.cell.pull(subject, name, request), group=name)
        if result is None:
            raise Violation("1", f"without faults, group {name} cannot be pulled")
        held = actor.history.pulled(verb, subject, name, result)
        if not held:
            return
        for pull in held:
            wish = Settlement(receipt=pull.receipt)
            pull.asks(wish)
            verb, answers = actor.ask("settle", partial(actor.cell.settle, subject, name, [wish]), wish=wish)
            if answers is None or answers[0].status != "settled":
                raise Violation("5", f"without faults, a pull of group {name} cannot be settled: {answers}")
            actor.history.settled(verb, pull, wish, answers[0])


def living_groups(ledger: Ledger) -> list[Group]:
    """All groups of subjects that were not deleted, in a fixed order."""
    groups = [group for _, group in sorted(ledger.groups.items()) if not group.deleted]
    return [group for group in groups if not ledger.gone(f"{group.subject}~{group.subject_generation}/0", group.member)]


def logs_of(ledger: Ledger, group: Group) -> list[str]:
    head = f"{group.subject}~{group.subject_generation}"
    queues = ledger.subjects[group.subject].queues
    return [group.retry_log, *(f"{head}/{queue}" for queue in range(queues))]


def unfinished(ledger: Ledger) -> list[str]:
    """What is still open, over all groups that live."""
    waiting: list[str] = []
    for group in living_groups(ledger):
        for log in logs_of(ledger, group):
            waiting += ledger.pull_history(f"{group.member}@{log}").pending()
        for row, state in sorted(ledger.dead.get(group.dead_log, {}).items()):
            if state.transfers and not ledger.expired(ledger.rows(group.dead_log)[row]):
                waiting.append(f"row {row} of {group.dead_log} has transfers")
    return waiting


def check(actor: Actor) -> None:
    """What holds of the stored whole once all groups are at rest."""
    # A hole in a dead log is open until the row behind it has some age.
    actor.process.sleep(GRACE_MS / 1_000 + 2 * actor.world.plan.skew_ms / 1_000)
    ledger = actor.history.ledger
    for log in sorted(ledger.logs):
        _check_offsets(ledger, log)
    for token in ledger.promises:
        _check_landed(ledger, token)
    for group in living_groups(ledger):
        _check_dead(actor, group)
    _check_delivered(actor)


def _check_offsets(ledger: Ledger, log: str) -> None:
    following = 0
    for number, fact in sorted(ledger.rows(log).items()):
        if fact.row.filler:
            continue
        if fact.row.number < following:
            raise Violation("6", f"{log}: row {number} begins at offset {fact.row.number}, before {following}")
        following = fact.row.number + fact.row.count


def _check_landed(ledger: Ledger, token: bytes) -> None:
    promise = ledger.promises[token]
    excused = promise.source_expires_ms <= ledger.soon or ledger.gone(promise.transfer.log)
    if promise.landed is None and not excused:
        raise Violation("9", f"a hand-over to {promise.transfer.log} row {promise.transfer.row} never landed")


def _check_dead(actor: Actor, group: Group) -> None:
    ledger = actor.history.ledger
    expected = [
        message.body
        for number, fact in sorted(ledger.rows(group.dead_log).items())
        if not fact.row.filler and not ledger.expired(fact)
        for index, message in enumerate(fact.messages)
        if number not in ledger.dead.get(group.dead_log, {}) or index not in ledger.dead[group.dead_log][number].done
    ]
    _, page = actor.ask("dead", lambda: actor.cell.dead(group.subject, group.name, after=None, limit=1_000))
    found = [message.body for message in page.messages] if page else []
    if found != expected:
        raise Violation("1", f"group {group.name} lists the dead letters {found}, it has {expected}")


def _check_delivered(actor: Actor) -> None:
    """Independent of stored formats: each group saw each accepted message, or it died, unless something else
    than delivery may have ended it in this run."""
    history, plan = actor.history, actor.world.plan
    ends = {"seek", "drop", "retention", "delete-group", "delete-subject"}
    if ends & set(plan.moves) or plan.retention_seconds == 60 or plan.quiet_days:
        return
    for group in living_groups(history.ledger):
        seen = history.delivered.get((group.subject, group.name), set())
        dead = {message.body for fact in history.ledger.rows(group.dead_log).values() for message in fact.messages}
        for body, (subject, _) in history.accepted.items():
            if subject == group.subject and group.start == "earliest" and body not in seen and body not in dead:
                raise Violation("1", f"message {body[:20]} was accepted, group {group.name} never saw it")
