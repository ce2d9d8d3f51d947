"""Runs one schedule: starts the actors of a plan, applies its faults, and judges the end."""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.context import Settings
from hourwheel.delay import changes, dispatch
from hourwheel.logs import tags
from hourwheel.model.fields import MAX_LEASE_SECONDS
from hourwheel.model.pulls import Pull, PullRequest, PullResult, Settlement
from hourwheel.ordered import key_state_cache, later_messages, parked_messages, snapshots
from hourwheel.ordered import selection as ordered_selection
from hourwheel.ports.storage import Counter, Key, Record, Refused, Table
from hourwheel.pull_log import keyed_rows
from hourwheel.pull_log.claiming import ahead, claim_range, growth
from hourwheel.pulling import answers, claimer
from hourwheel.registry.records import subject_key
from hourwheel.wire import answer_size
from tests.simulation.actors import Actor, Machine
from tests.simulation.archivists import Archivist, finish
from tests.simulation.audit import StoreAudit
from tests.simulation.cancellers import Canceller
from tests.simulation.checker import check, drain, drain_others, living_groups
from tests.simulation.consumers import Consumer
from tests.simulation.couriers import Couriers, Stream, target_of
from tests.simulation.crowds import crowded
from tests.simulation.damage import spoil
from tests.simulation.dates import Dates
from tests.simulation.draws import draw, on_engine
from tests.simulation.engines import Engine, opened_engine
from tests.simulation.herds import heated, herded
from tests.simulation.history import History, Leased
from tests.simulation.lags import check_lag
from tests.simulation.operators import Operator, SweepingActor, sweep_all
from tests.simulation.pages import has_small_pages, small_pages
from tests.simulation.plan import DAY_MS, Plan
from tests.simulation.producers import Producer
from tests.simulation.pushers import Courier
from tests.simulation.rebuilders import rebuild_and_judge
from tests.simulation.state import State
from tests.simulation.threads import threads_of
from tests.simulation.timers import Alarms, Announcements
from tests.simulation.wheels import WheelTurner
from tests.simulation.world import Violation, World, uncollected

_LAST_CALLS = 20_000
"""Far more than any run takes to its end."""

_CELL_RESTS_MS = 5_000
"""A process makes no call to a cell for this long after one that failed: see ``GuardedCells``."""


@dataclass(frozen=True)
class Outcome:
    """The result of one seed: the violation, if there was one, and the trace of all calls."""

    seed: int
    calls: int
    violation: BaseException | None
    world: World

    def lines(self) -> Iterable[str]:
        for at_ms, *what in self.world.trace:
            yield f"{at_ms:>9} ms  " + "  ".join(_short(part) for part in what)

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()


def _short(part: object) -> str:
    """Shortens a value so that a call fits into a line of the trace: records by their tokens, receipts left out."""
    match part:
        case Key(table, partition, sort):
            return f"{table}[{partition} {sort}]"
        case Record():
            return f"<{part.token.hex()[:6]}>"
        case Refused(current):
            return f"refused by {_short(current)}"
        case Counter(rows, numbers, sealed):
            return f"rows {rows} numbers {numbers}{' sealed' * sealed}"
        case Pull():
            return f"{part.queue}: {[(message.body, message.attempt) for message in part.messages]}"
        case PullResult():
            return f"{_short(part.pulls)} settled {part.settled}"
        case Settlement():
            return " ".join(f"{name} {getattr(part, name)}" for name in part.__struct_fields__ if name != "receipt")
        case list() | tuple():
            return " ".join(_short(item) for item in part)
        case dict():
            return " ".join(f"{name}={_short(value)}" for name, value in part.items())
    # The trace leaves out the results of transactions inside the library.
    return type(part).__name__ if is_dataclass(part) else str(part)


def simulate(seed: int, engine: str = "") -> Outcome:
    """Makes one run, which the seed determines completely, with a real store beside the simulated one if ``store``
    names one."""
    plan = heated(herded(crowded(draw(seed))))
    return run_plan(on_engine(plan, engine) if engine else plan)


def run_plan(plan: Plan) -> Outcome:
    world = World(plan)
    try:
        pages = small_pages() if has_small_pages(plan.seed) else nullcontext()
        with uncollected(), scaled(plan), pages, threads_of(world), opened_engine(plan.engine) as engine:
            _run(world, plan, engine)
    except Violation as violation:
        return Outcome(plan.seed, world.calls, violation, world)
    except Exception as error:
        return Outcome(plan.seed, world.calls, error, world)
    return Outcome(plan.seed, world.calls, None, world)


@contextmanager
def scaled(plan: Plan) -> Iterator[None]:
    """Lowers limits that no run would reach. A canceller that looked for a wheel each 50 ms would do nothing else."""
    picks = plan.delays.step_picks if plan.delays else 5_000
    with (
        _answers(plan.answer_bytes),
        patch.object(claim_range, "EMPTY_ROWS", plan.empty_rows),
        patch.object(ordered_selection, "AHEAD", plan.empty_rows if plan.ordered else ordered_selection.AHEAD),
        patch.object(key_state_cache, "_SNAPSHOT_ROWS", 3),
        patch.object(parked_messages, "MAX_PARKED", plan.max_parked),
        patch.object(parked_messages, "BLOCK", plan.parked_block),
        patch.object(later_messages, "BLOCK", plan.parked_block),
        patch.object(snapshots, "PAGE_BYTES", 100),
        patch.object(snapshots, "_PIECE_BLOCKS", 1),
        patch.object(growth, "ALONE_PULLS", plan.alone_pulls),
        patch.object(growth, "GROWS_MS", plan.grows_ms),
        patch.object(ahead, "AHEAD_MS", ahead.AHEAD_MS * (5 if plan.crowd else 1)),
        patch.object(dispatch, "STEP_PICKS", picks),
        _summaries(plan),
        patch.object(changes, "_LOOK_SECONDS", 0.9),
    ):
        yield


@contextmanager
def _summaries(plan: Plan) -> Iterator[None]:
    """Bounds summaries of tags to the plan's bytes, and the batches that a claim reads for want of a summary to two."""
    with ExitStack() as stack:
        if plan.tag_room is not None:
            stack.enter_context(patch.object(tags, "_room", lambda row, log: plan.tag_room))
            stack.enter_context(patch.object(claim_range, "MOST_BODIES", 2))
        yield


@contextmanager
def _answers(most: int) -> Iterator[None]:
    """Bounds the messages of an answer to ``most`` bytes, unless it is 0."""
    with ExitStack() as stack:
        if most:
            limits = {"PULL_BYTES": most, "TEXT_BYTES": most // 7, "_COARSE_BYTES": 0, "_COARSE_MESSAGE_BYTES": 0}
            for module in (answer_size, claimer, answers, keyed_rows):
                names = limits.keys() & vars(module).keys()
                assert names, f"{module.__name__} has none of these limits: they are in another module now"
                for name in names:
                    stack.enter_context(patch.object(module, name, limits[name]))
        yield


def machine_of(world: World, plan: Plan, engine: Engine | None = None) -> Machine:
    """Makes a machine with an empty store."""
    blobs = MemoryBlobs()
    audit = StoreAudit(world, blobs)
    couriers = Couriers(world)
    state = State(Stream(audit, couriers) if plan.couriers else audit, trims=plan.trims)
    audit.totals = state.counter
    world.expire = partial(_expire, world, state)
    world.spoil = partial(spoil, world, state, blobs, audit)
    dates = Dates(world.rng, plan.delays, world.now_ms) if plan.delays else None
    news = Announcements(world)
    return Machine(
        world, state, blobs, History(audit), _settings(plan), Alarms(world), dates, couriers, news, engine=engine
    )


def _expire(world: World, state: State) -> None:
    """Removes expired items as TTL does: by whole seconds, and some items sooner than others."""
    for key in state.expire(world.now_ms // 1_000 * 1_000, world.rng.choice((0.05, 0.5)), world.rng):
        world.record("ttl", key)


def _run(world: World, plan: Plan, engine: Engine | None) -> None:
    machine = machine_of(world, plan, engine)
    faults, world.faults, world.limit = world.faults, type(world.faults)(), sys.maxsize
    keeper = Actor(machine, world.process("keeper"))
    prepare(keeper, plan)
    fill(machine, plan)
    world.faults = faults
    for _ in range(2 if plan.quiet_days else 1):
        world.limit = world.calls + plan.calls
        for actor in _cast(machine, plan):
            world.spawn(actor.process, actor.live)
        world.run()
        world.limit = sys.maxsize
        if plan.quiet_days:
            world.calm()
            _quiet_days(keeper, plan)
            world.faults = faults
    judge(keeper)
    if engine is not None:
        engine.connect("judge", machine.state).compare()


def judge(keeper: Actor) -> None:
    """Brings the run to its end: faults stop, the groups drain, and nothing may be missing."""
    world, plan = keeper.world, keeper.world.plan
    was_cut_off = bool(world.outages)
    world.calm()
    if was_cut_off:
        world.pass_to(world.now_ms + _CELL_RESTS_MS)
    world.limit = world.calls + _LAST_CALLS
    for group in living_groups(keeper.history.audit):
        check_lag(keeper, group)
    _resume(keeper)
    drain(keeper, plan.lease_seconds)
    check(keeper)
    if plan.archivists:
        world.limit = world.calls + _LAST_CALLS
        finish(keeper)
        rebuild_and_judge(keeper)


def _resume(keeper: Actor) -> None:
    for subject, _, member in sorted(keeper.history.audit.paused_ms):
        if member:
            group = member.partition("~")[0]
            keeper.ask("pause", partial(keeper.deployment.groups.pause, subject, group, paused=False), group=group)
        else:
            keeper.ask("pause", partial(keeper.deployment.subjects.pause, subject, paused=False))


def _settings(plan: Plan) -> Settings:
    settings = Settings(
        inline_bytes=plan.inline_bytes,
        registry_seconds=plan.registry_seconds,
        retry=plan.retry,
        archive=plan.archivists > 0,
    )
    if plan.delays is None:
        return settings
    delays = plan.delays
    return msgspec.structs.replace(
        settings, bucket_minutes=delays.bucket_minutes, shards=delays.shards, tick_ms=delays.tick_ms
    )


def prepare(keeper: Actor, plan: Plan) -> None:
    if plan.has_spoilt_record:
        keeper.machine.state.set(Key(Table.META, "subjects/0", "a"), Record(b"\x00", b"listed" + bytes(10)))
        keeper.machine.state.set(subject_key("a"), Record(b"\xc1", b"spoilt" + bytes(10)))
    for number in range(plan.cells):
        keeper.deployment.cells.add(f"c{number}")
    for subject in plan.subjects:
        keeper.deployment.subjects.put(subject, queues=plan.queues, retention_seconds=plan.retention_seconds)
        for left, group in zip(range(len(plan.groups), 0, -1), plan.groups, strict=True):
            own = plan.own_retry if group == plan.groups[0] else None
            wanted = plan.filters[left - 1] if left <= len(plan.filters) else None
            order: dict[str, Any] = {
                "filter": wanted,
                "max_in_flight": plan.max_in_flight,
                "messages_per_second": plan.messages_per_second,
            }
            if plan.ordered and wanted is None:
                order |= {"ordered": True, "max_held": plan.max_held, "when_dead": plan.when_dead}
            if plan.broadcast_seconds and group == plan.groups[-1]:
                order |= {"broadcast": True, "consumer_expires_seconds": plan.broadcast_seconds}
            keeper.deployment.groups.put(subject, group, max_attempts=plan.max_attempts, retry=own, **order)
        if plan.couriers:
            keeper.deployment.groups.put(subject, plan.groups[0], push=target_of(plan.seed, plan.concurrency))


def fill(machine: Machine, plan: Plan) -> None:
    """Sends the messages for which the crowd of a plan comes."""
    filler = Producer(machine, machine.world.process("filler"))
    for _ in range(plan.crowd):
        filler.send_next()


def _cast(machine: Machine, plan: Plan) -> list[Actor]:
    world = machine.world
    actors: list[Actor] = [Producer(machine, world.process(f"p{n}@{world.calls}")) for n in range(plan.producers)]
    actors += [Consumer(machine, world.process(f"c{n}")) for n in range(plan.consumers)]
    actors += [SweepingActor(machine, world.process(f"w{n}")) for n in range(plan.sweepers)]
    actors += [Operator(machine, world.process(f"o{n}")) for n in range(plan.operators)]
    actors += [Archivist(machine, world.process(f"a{n}")) for n in range(plan.archivists)]
    actors += [Courier(machine, world.process(f"d{n}")) for n in range(plan.couriers)]
    if plan.delays:
        actors += [WheelTurner(machine, world.process(f"t{n}")) for n in range(plan.delays.wheels)]
        actors += [Canceller(machine, world.process(f"x{n}")) for n in range(plan.delays.cancellers)]
    return actors


def _quiet_days(keeper: Actor, plan: Plan) -> None:
    """Lets the sweeper alone run each minute, and in some plans one consumer that extends its lease for ever. Then lets
    days pass, in which TTL removes a share of the expired items."""
    world, state = keeper.world, keeper.machine.state
    held = _hold_on(keeper, plan) if world.rng.random() < 0.5 else []
    for _ in range(4):
        world.now_ms += 61_000
        sweep_all(keeper)
    if held:
        drain_others(keeper)
    for _ in range(10):
        world.now_ms += 4 * DAY_MS // 10
        for claim in held:
            extension = Settlement(receipt=claim.receipt, extend_seconds=MAX_LEASE_SECONDS)
            keeper.ask("extend", partial(keeper.deployment.settle, claim.subject, claim.group, [extension]))
        sweep_all(keeper)
    world.now_ms += MAX_LEASE_SECONDS * 1_000
    share = world.rng.choice((0.3, 0.7, 1.0))
    for key in state.expire(world.now_ms, share, world.rng):
        world.record("ttl", key)


def _hold_on(keeper: Actor, plan: Plan) -> list[Leased]:
    request = PullRequest(consumer="keeper", max_messages=1, lease_seconds=MAX_LEASE_SECONDS)
    subject, group = plan.subjects[0], plan.groups[0]
    verb, result = keeper.ask("pull", lambda: keeper.deployment.pull(subject, group, request))
    return keeper.history.pulled(verb, subject, group, result) if result else []
