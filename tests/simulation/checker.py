"""Checks the end of a run: the faults stop, the groups consume everything, and no message may be missing."""

from functools import partial

from hourwheel.logs.log import GRACE_MS
from hourwheel.logs.rows import sort_of
from hourwheel.model.groups import Group
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports.storage import Table
from hourwheel.pull_log.claiming.selection import PASSED_MS
from tests.simulation.actors import Actor
from tests.simulation.audit import StoreAudit
from tests.simulation.buckets import BucketHistory
from tests.simulation.facts import NEVER, LogName
from tests.simulation.filters import taken
from tests.simulation.lags import check_lag
from tests.simulation.letters import check_broadcast, check_dead
from tests.simulation.operators import sweep_all
from tests.simulation.orders import OrderedHistory
from tests.simulation.plan import DAY_MS
from tests.simulation.pushers import push
from tests.simulation.traces import check_traces
from tests.simulation.world import Violation

_ROUNDS = 200
_SWEEP_MS = 61_000
_PULLS = 60
_FILLING_SWEEPS = 60  # one fills two rows, and a batch over subjects that is refused again and again leaves many


def drain(actor: Actor, longest_lease_seconds: int) -> None:
    """Lets time pass until all buckets are over and all messages are consumed. A group or a wheel that does not come to
    rest is a violation (invariants 1 and 7)."""
    audit, alarms = actor.history.audit, actor.machine.alarms
    for _ in range(_ROUNDS):
        while alarms.fired:
            bucket = alarms.fired.pop(0).bucket
            owner = f"keeper {actor.world.calls}"
            actor.ask("wheel", partial(actor.deployment.turn_wheel, bucket, owner, actor.wait), bucket=bucket)
        _push(actor)
        if unfinished(audit):
            actor.process.sleep(longest_lease_seconds + 2 * actor.world.plan.skew_ms / 1_000 + 1)
            _await_retries(actor)
            sweep_all(actor)
            for group in living_groups(audit):
                if group.push is None:
                    _consume(actor, group)
        elif _open_buckets(audit) or _open_changes(audit):
            _pass_time(actor)
        else:
            return
    if unfinished(audit):
        raise Violation("1", f"the groups do not come to rest after the faults have ended: {unfinished(audit)[:3]}")
    names = [history.name for history in _open_buckets(audit)]
    raise Violation("7", f"the wheels do not rest after the faults have ended: {names[:3]} {_open_changes(audit)[:3]}")


def _await_retries(actor: Actor) -> None:
    """Lets time pass until a message that failed in an ordered group is due, if all groups wait for such messages."""
    audit = actor.history.audit
    waiting = [history for history in audit.pulls.values() if history.pending()]
    dues = [history.next_due_ms if isinstance(history, OrderedHistory) else 0 for history in waiting]
    if min(dues, default=0) > actor.world.now_ms:
        actor.world.pass_to(min(dues) + 2 * actor.world.plan.skew_ms)


def _push(actor: Actor) -> None:
    """Runs the pushers that were started. Stored rows start no pusher any more: the sweeper has to start them."""
    couriers = actor.machine.couriers
    couriers.stored.clear()
    while couriers.started:
        push(actor, *couriers.started.pop(0))


def _pass_time(actor: Actor) -> None:
    """Sleeps until the next timer. If it was lost, sleeps until a bucket is over, when the sweeper starts its wheel."""
    world = actor.world
    opened = _open_buckets(actor.history.audit)
    over_ms = min((history.bucket.end_ms for history in opened), default=0) + world.plan.skew_ms
    coming_ms = world.next_alarm()
    if coming_ms is not None and coming_ms <= max(over_ms, world.now_ms + 3_000):
        world.pass_to(coming_ms)
    else:
        world.pass_to(max(over_ms, world.now_ms + _SWEEP_MS))
        sweep_all(actor)


def _open_buckets(audit: StoreAudit) -> list[BucketHistory]:
    return [history for _, history in sorted(audit.buckets.items()) if history.open]


def _open_changes(audit: StoreAudit) -> list[str]:
    """Returns the messages whose change is still undecided."""
    return [
        f"{name} {pick}"
        for name, history in sorted(audit.buckets.items())
        for pick, change in history.changes.items()
        if change.state == "waiting"
    ]


def drain_others(actor: Actor) -> None:
    """Consumes the messages that no consumer has leased."""
    for group in living_groups(actor.history.audit):
        _consume(actor, group)


def _consume(actor: Actor, group: Group) -> None:
    subject, name = group.subject, group.shared_name
    request = PullRequest(consumer=group.consumer or "drain", max_messages=5, lease_seconds=30)
    for _ in range(_PULLS):
        pull = partial(actor.deployment.pull, subject, name, request)
        verb, result = actor.ask("pull", pull, group=name, lease_seconds=30)
        if result is None:
            raise Violation("1", f"without faults, group {name} cannot be pulled")
        held = actor.history.pulled(verb, subject, name, result)
        if not held:
            return
        for pull in held:
            chosen = Settlement(receipt=pull.receipt)
            pull.asks(chosen)
            verb, answers = actor.ask(
                "settle", partial(actor.deployment.settle, subject, name, [chosen]), chosen=chosen
            )
            if answers is None or answers[0].status != "settled":
                raise Violation("5", f"without faults, a pull of group {name} cannot be settled: {answers}")
            actor.history.settled(verb, pull, chosen, answers[0])


def living_groups(audit: StoreAudit) -> list[Group]:
    """Returns the groups of all subjects that were not deleted, in a fixed order."""
    groups = [group for _, group in sorted(audit.groups.items()) if not (group.deleted or group.broadcast)]
    return [group for group in groups if not audit.gone(f"{group.subject}~{group.subject_generation}/0", group.member)]


def logs_of(audit: StoreAudit, group: Group) -> list[str]:
    return [group.retry_log, *audit.subjects[group.subject].queue_logs()]


def unfinished(audit: StoreAudit) -> list[str]:
    """Returns the open work of all groups that are not deleted."""
    waiting: list[str] = []
    for group in living_groups(audit):
        for log in logs_of(audit, group):
            waiting += audit.pull_history(f"{group.member}@{log}").pending()
        for row, state in sorted(audit.dead.get(group.dead_log, {}).items()):
            if state.transfers and not audit.expired(audit.rows(group.dead_log)[row]):
                waiting.append(f"row {row} of {group.dead_log} has transfers")
    return waiting


def check(actor: Actor) -> None:
    """Checks the whole store once all groups are at rest."""
    # Readers leave a hole in a dead log open until the row behind it has some age.
    actor.process.sleep(GRACE_MS / 1_000 + 2 * actor.world.plan.skew_ms / 1_000)
    audit = actor.history.audit
    for log in sorted(audit.logs):
        _check_offsets(audit, log)
    for _, history in sorted(audit.buckets.items()):
        waiting = history.waiting()
        if waiting:
            raise Violation("7", f"messages {waiting} of bucket {history.name} were never handed over")
    audit.effects.check_came(actor.history.given_up)
    for token in audit.promises:
        _check_carried_out(audit, token)
    _fill_ends(actor)
    _pass_unmatched(actor)
    for group in living_groups(audit):
        dead = check_dead(actor, group)
        check_traces(actor, group)
        lag = check_lag(actor, group)
        unserved = sum(audit.pull_history(f"{group.member}@{log}").unserved for log in logs_of(audit, group))
        # A message that has expired by one clock, and not by another, counts as waiting.
        # So do messages behind a stopped key.
        certain = not (_expires(actor) and actor.world.plan.skew_ms) and actor.world.plan.when_dead != "stop"
        if (lag.in_flight, lag.dead) != (0, dead) or (certain and lag.waiting + lag.retrying > unserved):
            raise Violation("1", f"group {group.name} is at rest with {dead} dead letters, its lag is {lag}")
    check_broadcast(actor, [group for group in living_groups(audit) if group.consumer])
    _check_delivered(actor)
    _check_answers(actor)


def _pass_unmatched(actor: Actor) -> None:
    """Lets groups with a filter pass over the last messages, which count as waiting until then."""
    if actor.world.plan.filters:
        actor.process.sleep(2 * (PASSED_MS + actor.world.plan.skew_ms) / 1_000)
        for group in living_groups(actor.history.audit):
            _consume(actor, group)


def _fill_ends(actor: Actor) -> None:
    """Sweeps until the rows are filled that were given out at the end of a log and never stored: twice at least, and
    more often where one sweep fills few of them. A sweep that finishes a change of the route leaves the queues to the
    next one."""
    groups = living_groups(actor.history.audit)
    least = 3 if actor.world.plan.cells else 2
    for done in range(_FILLING_SWEEPS):
        stored = all(_all_stored(actor, group, log) for group in groups for log in logs_of(actor.history.audit, group))
        if stored and (done == 0 or done >= least):
            return
        actor.process.sleep(_SWEEP_MS / 1_000)
        sweep_all(actor)


def _check_offsets(audit: StoreAudit, log: str) -> None:
    following = 0
    for number, fact in sorted(audit.rows(log).items()):
        if fact.row.filler:
            continue
        if fact.row.first_seq < following:
            raise Violation("6", f"{log}: row {number} begins at offset {fact.row.first_seq}, before {following}")
        following = fact.row.first_seq + fact.row.count


def _check_carried_out(audit: StoreAudit, token: bytes) -> None:
    promise = audit.promises[token]
    plan = promise.transfer.due_times
    nowhere = promise.replaced or not promise.transfer.log or (plan is not None and audit.abandoned(plan))
    nowhere = nowhere or (promise.source_expires_ms == NEVER and audit.missed(promise.transfer))
    excused = promise.source_expires_ms <= audit.soon or nowhere or audit.lost(promise.transfer.log)
    if promise.stored_row is None and not excused:
        raise Violation("9", f"a hand-over to {promise.transfer.log} row {promise.transfer.row_no} was never stored")


def _all_stored(actor: Actor, group: Group, log: str) -> bool:
    """Returns whether every row of the log that the group has not claimed is stored, or below the trim mark."""
    audit = actor.history.audit
    rows, mark = actor.machine.state.partition(Table.CONSUME, log).items, audit.trim_marks.get(log, 0)
    first = audit.pull_history(f"{group.member}@{log}").end.row_no
    return all(sort_of(row) in rows for row in range(max(first, mark), audit.totals(log).rows))


def _expires(actor: Actor) -> bool:
    """Returns whether messages may expire during the run."""
    plan = actor.world.plan
    return plan.retention_seconds == 60 or "retention" in plan.moves or plan.quiet_days


def _check_delivered(actor: Actor) -> None:
    """Checks without the stored formats that each group got each accepted message, or that the message is a dead
    letter, unless this run may end messages in another way."""
    history, plan = actor.history, actor.world.plan
    ends = {"seek", "drop", "retention", "delete-group", "delete-subject"}
    days = plan.quiet_days or (plan.delays is not None and plan.delays.reach_ms > DAY_MS)
    if ends & set(plan.moves) or plan.retention_seconds == 60 or days or plan.when_dead == "stop":
        return
    facts = [fact for rows in history.audit.logs.values() for fact in rows.values()]
    unreadable = {message.body for fact in facts if fact.damaged for message in fact.messages}
    for group in living_groups(history.audit):
        seen = history.delivered.get((group.subject, group.member if group.consumer else group.name), set())
        dead = {message.body for fact in history.audit.rows(group.dead_log).values() for message in fact.messages}
        for body, (subject, _) in history.accepted.items():
            if body in history.given_up or body in unreadable:
                continue
            if not taken(history.audit, group, body):
                continue
            if subject == group.subject and group.start == "earliest" and body not in seen and body not in dead:
                raise Violation("1", f"message {body[:20]} was accepted, group {group.name} never saw it")


def _check_answers(actor: Actor) -> None:
    """Checks that each message with the answer ``dispatched`` is where the answer says (8)."""
    audit = actor.history.audit
    for (name, pick), answer in actor.history.finals.items():
        if answer.offset is None or pick not in audit.bucket(name).named:
            continue
        promise = audit.promises[audit.bucket(name).named[pick]]
        transfer = promise.transfer
        log = LogName.parse(transfer.log or "schedule/")
        if log.queue is None or audit.lost(transfer.log) or promise.stored_row is None:
            continue
        offset = audit.rows(transfer.log)[promise.stored_row].row.first_seq + transfer.picks.index(pick)
        if (answer.queue, answer.offset) != (log.queue, offset):
            raise Violation(
                "8", f"{pick} of {name} is at {log.queue}/{offset}, answered {answer.queue}/{answer.offset}"
            )
