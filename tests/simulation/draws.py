"""Draws the plan of a seed before its run begins: the actors, the sizes, and the faults.

Each seed enables a random subset of everything (swarm testing): a bug that one kind of fault
would hide is found by a seed that has no such fault.
"""

from dataclasses import replace
from random import Random

from hourwheel.model.groups import RetryPolicy, TagFilter
from tests.simulation.delays import Delays
from tests.simulation.faults import NONE, Faults
from tests.simulation.plan import AT_ONCE, DAY_MS, Plan

_FAULTS = {"crash": 0.02, "throttle": 0.08, "lose": 0.10, "late": 0.04, "pause": 0.04, "stale": 0.6}
_HOUR_MS = 3_600_000
_SHARE = 0.3
"""The share of plans with delayed messages."""
_PRECISE = 0.6
"""The share of precise timers, as far as the plan's wheels have ticks."""
_LEFT = 0.1
"""The share of plans in which an operator ends the leases of consumers."""
_FILTERED = 0.15
"""The share of plans with groups that have a tag filter."""
FILTERS = (
    TagFilter(tags_any=("a",)),
    TagFilter(tags_any=("a", "c")),
    TagFilter(tags_all=("a", "b")),
    TagFilter(tags_none=("a",)),
    TagFilter(tags_any=("b",), tags_none=("c",)),
)
_PUSHED = 0.15
"""The share of plans with a group that is pushed."""
_LIMITED = 0.15
"""The share of plans with groups that limit their leased messages."""
_RATED = 0.1
"""The share of plans with groups that limit their rate."""
_CLOSED = 0.1
"""The share of plans with subjects that are read-only for a while."""
_PAUSED = 0.15
"""The share of plans with pauses."""
_MOVED = 0.12
"""The share of plans with other cells, to which queues move."""
_CUT_OFF = 0.5
"""The share of plans with other cells in which a cell is out of reach from time to time."""
_ARCHIVED = 0.15
"""The share of plans with an archive."""
_NUMBERED = 0.3
"""The share of plans with producers that number their batches."""
_BROADCAST = 0.12
"""The share of plans with a group that broadcasts."""
_ORDERED = 0.25
"""The share of plans with ordered groups."""
_STEADY = 0.35
"""The share of plans with consumers that acknowledge each pull by the next one."""
_HURRIED = 0.4
"""The share of plans with retries that wait, unordered, in which an operator retries them at once."""
_MOVES = ("redrive", "drop", "seek", "retention", "attempts", "lag", "latest", "queues")
_MORE_MOVES = ("pending", "letters")
_DELETIONS = ("delete-group", "delete-subject")


def draw(seed: int) -> Plan:
    plan = _drawn(seed)
    return by_the_minute(precisely(plan), seed) if Random(seed ^ 0x71E5).random() < _PRECISE else plan


def by_the_minute(plan: Plan, seed: int) -> Plan:
    """Returns the plan with messages that may come a minute late, in half of the plans that have delays."""
    if plan.delays is None:
        return plan
    return replace(plan, delays=replace(plan.delays, minute=Random(seed ^ 0x317).choice((0.0, 0.0, 0.4, 1.0))))


def precisely(plan: Plan) -> Plan:
    """Returns the plan with precise timers, if it has delayed messages and wheels with ticks."""
    if plan.delays is None or not plan.delays.tick_ms:
        return plan
    return replace(plan, delays=replace(plan.delays, precise=True))


def _drawn(seed: int) -> Plan:
    plan, rng = unarchived(seed), Random(seed ^ 0xA2C417)
    prompt = plan.delays is not None and plan.delays.prompt
    plan = archived(plan, rng) if rng.random() < _ARCHIVED and not prompt else plan
    if prompt:
        return plan
    plan = slower(harder(plan, Random(seed ^ 0x4A4D)), Random(seed ^ 0x51013))
    plan = limited(paused(plan, Random(seed ^ 0x9A05E)), Random(seed ^ 0xF10E))
    rng = Random(seed ^ 0x2A7E)
    plan = replace(plan, messages_per_second=rng.choice((5, 20))) if rng.random() < _RATED else plan
    if rng.random() < _CLOSED:
        plan = replace(plan, moves=(*plan.moves, "close"), operators=max(plan.operators, 1))
    rng = Random(seed ^ 0xF117E5)
    plan = filtered(plan, rng) if rng.random() < _FILTERED else plan
    plan = left(plan) if Random(seed ^ 0x1EA7E).random() < _LEFT else plan
    rng = Random(seed ^ 0x1A26E)
    plan = enlarged(plan, rng) if rng.random() < 0.1 else plan
    plan = moved(plan, Random(seed ^ 0xCE11))
    plan = with_outages(plan) if plan.cells and Random(seed ^ 0x0FF).random() < _CUT_OFF else plan
    plan = damaged(plan) if rng.random() < 0.1 and not plan.archivists else plan
    plan = replace(plan, concurrency=rng.choice((1, 1, 2, 3))) if plan.couriers else plan
    rng = Random(seed ^ 0x02DE2)
    # An ordered group takes all messages: those with a filter are not ordered.
    plan = in_order(plan, rng) if rng.random() < _ORDERED else plan
    plan = replace(plan, numbered=plan.keyed > 0 and Random(seed ^ 0x5E9).random() < _NUMBERED)
    rng = Random(seed ^ 0xB40AD)
    plan = broadcasting(plan, rng) if rng.random() < _BROADCAST and not plan.archivists else plan
    plan = choosing(plan, Random(seed ^ 0xC401CE))
    plan = hurried(plan) if Random(seed ^ 0x40221).random() < _HURRIED else plan
    rng = Random(seed ^ 0x57EAD)
    return steadily(plan, rng) if rng.random() < _STEADY and not plan.transactional else plan


def choosing(plan: Plan, rng: Random) -> Plan:
    """Returns the plan; in half of those with cancellers these also change all messages that are due at one time."""
    if plan.delays is None or not plan.delays.cancellers or rng.random() < 0.5:
        return plan
    return replace(plan, choices=("cancel_chosen", "move_chosen"))


def hurried(plan: Plan) -> Plan:
    """Returns the plan with an operator who retries at once what waits for its retry, if its groups can do that."""
    waits = plan.delays is not None and (plan.retry != AT_ONCE or plan.delays.own_retries)
    if plan.ordered or not waits:
        return plan
    return replace(plan, moves=(*plan.moves, "hurry"), operators=max(1, plan.operators))


def steadily(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with consumers that acknowledge each pull by the next one, so that rows grow."""
    if rng.random() < 0.8:
        moves = tuple(move for move in plan.moves if move not in ("refilter", "decide"))
        plan = replace(plan, moves=moves, operators=plan.operators if moves else 0)
        plan = replace(plan, ordered=False, when_dead="continue", filters=(), max_in_flight=0, messages_per_second=0)
    return replace(
        plan,
        steady=rng.choice((0.7, 0.9, 0.97)),
        alone_pulls=rng.choice((1, 1, 2, 3)),
        grows_ms=rng.choice((2_000, 60_000)),
        queues=1,
        groups=plan.groups if plan.broadcast_seconds else plan.groups[: rng.choice((1, 1, 2))],
        consumers=rng.choice((1, 1, 2, 3)),
        producers=max(2, plan.producers),
        lease_seconds=rng.choice((plan.lease_seconds, 5, 20)),
        sweepers=min(plan.sweepers, 1),
        calls=plan.calls + 600,
    )


def broadcasting(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with a last group that broadcasts. Its consumers come, go, and are forgotten."""
    if plan.ordered or (len(plan.groups) == 1 and plan.couriers):
        return plan  # a group that is ordered or has a target does not broadcast
    return replace(plan, broadcast_seconds=rng.choice((1, 3, 10, 3_600)), sweepers=max(1, plan.sweepers))


def moved(plan: Plan, rng: Random) -> Plan:
    """Returns the plan; in some cases with cells between which an actor moves queues."""
    # A rebuild needs the cells.
    if rng.random() >= _MOVED or plan.archivists or plan.engine:
        return plan
    return with_cells(plan, rng.choice((1, 2)))


def with_cells(plan: Plan, cells: int) -> Plan:
    """Returns the plan with that many cells beside the home cell, and an actor that moves queues and drains cells."""
    moves = ("move", "move", "move", "drain", "undrain", "withdraw")
    return replace(plan, cells=cells, moves=(*plan.moves, *moves), operators=max(plan.operators, 1))


def with_outages(plan: Plan) -> Plan:
    """Returns the plan with cells that are out of reach from time to time."""
    return replace(plan, moves=(*plan.moves, "outage", "outage"))


def paused(plan: Plan, rng: Random) -> Plan:
    """Returns the plan; in some cases with an actor that pauses and resumes groups and subjects."""
    if rng.random() >= _PAUSED:
        return plan
    return replace(plan, moves=(*plan.moves, "pause"), operators=max(plan.operators, 1))


def limited(plan: Plan, rng: Random) -> Plan:
    """Returns the plan; in some cases with groups that limit their leased messages."""
    return replace(plan, max_in_flight=rng.choice((1, 2, 5))) if rng.random() < _LIMITED else plan


def in_order(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with groups that serve the messages of a key one after the other."""
    policy = rng.choice((AT_ONCE, AT_ONCE, RetryPolicy(first_seconds=1), RetryPolicy(first_seconds=20)))
    plan = replace(plan, ordered=True, retry=plan.retry if plan.delays is not None else policy)
    if rng.random() < 0.3:
        # No small bound: a queue that is full of stopped keys waits for ever.
        return replace(plan, when_dead="stop", moves=(*plan.moves, "decide"), operators=max(plan.operators, 1))
    keys, messages = (rng.choice((1, 2, 5, most, most)) for most in (10_000, 1_000_000))
    return replace(plan, max_held=keys, max_parked=messages)


def on_engine(plan: Plan, engine: str) -> Plan:
    """Returns the plan without the parts that a real store cannot carry out."""
    if engine == "dynamodb":
        faults = replace(plan.faults, rerun=0.0, damage=0.0)
        return replace(plan, engine=engine, transactional=False, trims=False, faults=faults)
    rng = Random(plan.seed ^ 0x5C1)
    # An engine in the same process has no calls that land later, no reads that are out of date and no TTL.
    faults = replace(plan.faults, late=0.0, stale=0.0, torn=0.0, damage=0.0, abort=rng.choice((0.0, 0.002, 0.02)))
    return replace(plan, engine=engine, transactional=True, trims=True, quiet_days=False, faults=faults)


def slower(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with slow faults: clocks that drift, pauses of minutes, and late TTL."""
    fits = plan.delays is None and not plan.couriers and not plan.transactional and not plan.trims
    if fits and rng.random() < 0.25:
        plan = replace(plan, quiet_days=True, retention_seconds=rng.choice((60, 30 * 86_400)))
    # Settled rows may expire only after sweeps, and no sweep happens in the days that a jump to a distant date skips.
    sweeps = plan.delays is None or plan.delays.reach_ms < DAY_MS
    late_ttl = not plan.transactional and not plan.trims and sweeps and rng.random() < 0.5
    minutes = plan.faults.pause > 0 and rng.random() < 0.25
    return replace(
        plan,
        faults=replace(plan.faults, expiry=rng.choice((0.02, 0.1)) if late_ttl else 0.0),
        drift=rng.choice((0.005, 0.05)) if plan.skew_ms and rng.random() < 0.3 else 0.0,
        long_pauses=plan.long_pauses or minutes,
        longest_pause_ms=600_000 if minutes else 90_000,
    )


def harder(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with more faults and more mistakes of callers."""
    faults = replace(
        plan.faults,
        rerun=0.3 if plan.transactional and rng.random() < 0.7 else 0.0,
        torn=0.3 if not plan.transactional and rng.random() < 0.4 else 0.0,
        clock=0.02 if plan.skew_ms and rng.random() < 0.4 else 0.0,
    )
    moves = plan.moves + tuple(move for move in _MORE_MOVES if rng.random() < 0.2)
    policies = (AT_ONCE, RetryPolicy(first_seconds=1), RetryPolicy(first_seconds=20))
    plan = replace(
        plan,
        faults=faults,
        together=rng.random() < 0.2,
        misuse=plan.keyed > 0 and rng.random() < 0.3,
        moves=moves,
        operators=max(plan.operators, 1 if moves else 0),
        own_retry=rng.choice(policies) if plan.delays is not None and rng.random() < 0.4 else None,
    )
    plan = cut(plan, rng) if rng.random() < 0.2 else plan
    return retargeted(plan) if plan.couriers and rng.random() < 0.4 else plan


def cut(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with answers that contain one or two messages."""
    return replace(plan, answer_bytes=rng.choice((700, 1_300)))


def enlarged(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with batches of which some stand in their row, others in objects, and messages that are larger
    than the limit of an answer."""
    return replace(
        plan, large_bytes=rng.choice((900, 3_000)), inline_bytes=1_024, answer_bytes=rng.choice((0, 1_300, 3_000))
    )


def damaged(plan: Plan) -> Plan:
    """Returns the plan with stored batches that cannot be read any more."""
    return replace(plan, faults=replace(plan.faults, damage=0.01))


def retargeted(plan: Plan) -> Plan:
    """Returns the plan with an actor that changes, removes and restores the target."""
    return replace(plan, moves=(*plan.moves, "target"), operators=max(plan.operators, 1))


def left(plan: Plan) -> Plan:
    """Returns the plan with an operator who ends the leases of consumers."""
    return replace(plan, moves=(*plan.moves, "leave"), operators=max(plan.operators, 1))


def filtered(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with groups that take some messages by their tags."""
    filters = tuple(rng.choice(FILTERS) for _ in range(rng.randint(1, len(plan.groups))))
    changes = ("refilter",) if rng.random() < 0.3 else ()
    return replace(
        plan,
        filters=filters,
        tag_room=rng.choice((None, None, 0, 14)),
        moves=(*plan.moves, *changes),
        operators=max(plan.operators, len(changes)),
    )


def unarchived(seed: int) -> Plan:
    """Returns the plan without an archive."""
    plan = _draw(seed)
    rng = Random(seed ^ 0xDE1A7)
    plan = delayed(plan, rng) if rng.random() < _SHARE else plan
    rng = Random(seed ^ 0x9054)
    fits = not plan.quiet_days and (plan.delays is None or not plan.delays.prompt)
    return pushed(plan, rng) if rng.random() < _PUSHED and fits else plan


def archived(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with an archivist, and a sweeper that removes rows unless they wait for the archive."""
    return replace(plan, archivists=rng.choice((1, 1, 2)), calls=plan.calls * 2, sweepers=max(1, plan.sweepers))


def pushed(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with an actor that pushes for the first group, and a sweeper that starts overdue pushers."""
    forget = max(plan.faults.forget, rng.choice((0.0, 0.3)))
    return replace(
        plan,
        couriers=rng.choice((1, 2, 2, 3)),
        calls=plan.calls * 2,
        sweepers=max(1, plan.sweepers),
        faults=replace(plan.faults, forget=forget),
    )


def delayed(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with delayed messages."""
    minutes = rng.choice((5, 5, 20, 60))
    length_ms = minutes * 60_000
    faults = replace(plan.faults, forget=0.3 if rng.random() < 0.3 else 0.0)
    reaches = (5_000, 20_000, 60_000, length_ms, 3 * length_ms, 12 * _HOUR_MS, 30 * DAY_MS, 731 * DAY_MS)
    plan = replace(
        plan,
        calls=rng.choice((250, 400, 600, 900)),
        sweepers=max(1, plan.sweepers),
        faults=faults,
        quiet_days=False,
        retention_seconds=60 if plan.retention_seconds == 60 else 259_200,
        # In many runs a bucket is over soon.
        start_ms=length_ms - rng.choice((1_000, 5_000, 30_000, 120_000, length_ms)),
        retry=rng.choice(
            (AT_ONCE, AT_ONCE, RetryPolicy(first_seconds=1), RetryPolicy(), RetryPolicy(first_seconds=90))
        ),
        delays=Delays(
            share=rng.choice((0.3, 0.7, 1.0)),
            bucket_minutes=minutes,
            shards=rng.choice((1, 1, 1, 2)),
            reach_ms=rng.choice(reaches),
            dates=rng.choice((1, 1, 2)),
            batches=rng.choice((1, 2, 4)),
            wheels=rng.choice((1, 2, 2, 3)),
            leaves_seconds=rng.choice((0, 0, 5, 60)),
            cancellers=rng.choice((0, 1, 1, 2)),
            own_retries=rng.random() < 0.3,
            patience=rng.choice((0.1, 0.4, 0.8)),
            pace=rng.choice((1, 3, 10)),
            step_picks=rng.choice((1, 2, 5_000)),
            tick_ms=rng.choice((500, 500, 100, 0, 0, 0)),
        ),
    )
    return prompt(plan, rng) if rng.random() < 0.2 else plan


def prompt(plan: Plan, rng: Random) -> Plan:
    """Returns the plan without faults, and with enough wheels for all buckets."""
    assert plan.delays is not None
    return replace(
        plan,
        faults=NONE,
        skew_ms=0,
        producers=3,
        calls=900,
        start_ms=rng.randrange(_HOUR_MS // 2),
        delays=replace(
            plan.delays,
            prompt=True,
            bucket_minutes=60,
            shards=1,
            reach_ms=_HOUR_MS // 2,
            dates=5,
            batches=8,
            wheels=6,
            leaves_seconds=0,
            patience=0.7,
            pace=1,
            step_picks=5_000,
        ),
    )


def _draw(seed: int) -> Plan:
    rng = Random(seed)
    enabled = {name: rng.random() for name in _FAULTS}
    rates = {name: _FAULTS[name] * rng.choice((0.3, 1, 2)) for name, roll in enabled.items() if roll < 0.6}
    moves = [move for move in _MOVES if rng.random() < 0.35] if rng.random() < 0.6 else []
    moves += [move for move in _DELETIONS if rng.random() < 0.5] if rng.random() < 0.2 else []
    spanning = rng.random() < 0.2
    quiet_days = rng.random() < 0.12
    transactional = rng.random() < 0.2
    if transactional:
        # An engine in the same process has no calls that land later.
        rates.pop("late", None)
    return Plan(
        seed=seed,
        transactional=transactional,
        trims=rng.random() < 0.4,
        calls=rng.choice((100, 150, 220, 350)),
        switch=rng.choice((0.15, 0.5, 0.9)),
        latency_ms=rng.choice((2, 20, 80)),
        skew_ms=rng.choice((0, 300, 4_000)),
        long_pauses=rng.random() < 0.15,
        budget_seconds=rng.choice((0.0, 0.3, 5.0)),
        registry_seconds=rng.choice((0.0, 2.0, 2.0)),
        inline_bytes=16 if rng.random() < 0.15 else 12_288,
        faults=Faults(**rates),
        subjects=("s", "t") if spanning else ("s",),
        queues=rng.choice((1, 1, 1, 2)),
        retention_seconds=30 * 86_400 if quiet_days else rng.choice((60, 259_200, 259_200, 259_200)),
        groups=("a", "b", "c")[: rng.choice((1, 2, 2, 3))],
        max_attempts=rng.choice((1, 2, 3, 16)),
        lease_seconds=rng.choice((1, 2, 5)),
        producers=rng.choice((1, 2, 3)),
        consumers=rng.choice((1, 2, 3)),
        sweepers=rng.choice((0, 1, 1, 2)),
        keyed=rng.choice((0.0, 0.5, 1.0)),
        resends=rng.random() < 0.3,
        spanning=spanning,
        operators=rng.choice((1, 1, 2)) if moves else 0,
        moves=tuple(moves),
        quiet_days=quiet_days,
        empty_rows=rng.choice((1, 2, 500)),
        shares=(1, 2, 4)[seed // 2 % 3],
    )
