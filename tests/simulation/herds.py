"""Draws herds, many messages due at one instant, and judges whether the destinations of a bucket take turns."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TYPE_CHECKING, TypeAlias

from hourwheel.delay.ownership import Dispatched
from tests.simulation.facts import Pick
from tests.simulation.pages import has_small_pages
from tests.simulation.plan import Plan
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.buckets import BucketHistory

Destination: TypeAlias = tuple[str, int, str | None]

_SHARE = 0.3
"""The share of the plans with delayed messages that have a herd."""


def herded(plan: Plan) -> Plan:
    """Returns the plan; in some cases with a herd."""
    rng = Random(plan.seed ^ 0x4E4D)
    if plan.delays is None or plan.delays.prompt or plan.cells or rng.random() >= _SHARE:
        return plan
    return with_herd(plan, rng)


def heated(plan: Plan) -> Plan:
    """Returns the plan; in some cases with a queue whose partition refuses most writes for want of units."""
    rng = Random(plan.seed ^ 0x407)
    if plan.delays is None or plan.delays.prompt or plan.transactional or plan.cells or rng.random() >= _SHARE:
        return plan
    return with_heat(plan, rng)


def with_heat(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with a queue whose partition refuses most writes."""
    return replace(plan, faults=replace(plan.faults, hot=rng.choice((0.5, 0.9, 0.97))))


def with_herd(plan: Plan, rng: Random) -> Plan:
    """Returns the plan with messages of two subjects that fall due at one instant, more of them than a step takes."""
    assert plan.delays is not None
    delays = replace(
        plan.delays,
        herd=True,
        share=1.0,
        dates=1,
        batches=max(4, plan.delays.batches),
        step_picks=rng.choice((1, 2)),
        reach_ms=min(plan.delays.reach_ms, 60_000),
    )
    # A turn is judged by the clock of its wheel, which is then that of the run.
    faults = replace(plan.faults, clock=0.0)
    return replace(plan, subjects=("s", "t"), spanning=True, skew_ms=0, drift=0.0, faults=faults, delays=delays)


@dataclass
class DestinationTurns:
    """Counts what a wheel hands over while due messages of another destination wait. A destination waits for a slice
    of each other one, and for a step that was under way."""

    bucket: "BucketHistory"
    _waiting: dict[Destination, Counter[Destination]] = field(default_factory=dict)
    """What was handed over since a destination has waited."""

    def dispatched(self, verb: Verb, value: Dispatched, fresh: Iterable[Pick]) -> None:
        """Judges a row of the dispatch log, of which these messages were not named before (7)."""
        plan = self.bucket.audit.world.plan
        if plan.delays is None or plan.skew_ms or plan.cells or plan.faults.hot or has_small_pages(plan.seed):
            return
        if not value.transfers:
            # A new owner: it has read nothing before.
            self._waiting.clear()
            return
        fresh = set(fresh)
        if len(fresh) > plan.delays.step_picks:
            raise Violation("7", f"bucket {self.bucket.name}: a step hands over {len(fresh)} messages")
        served = Counter(map(self._destination, fresh))
        due = self._due(verb, value.at_ms, fresh)
        kept = {name: count + served for name, count in self._waiting.items() if name in due and name not in served}
        for name, count in kept.items():
            most = max(count.values(), default=0)
            if most > 2 * plan.delays.step_picks:
                raise Violation("7", f"bucket {self.bucket.name}: {name} waits while {most} messages of another go on")
        self._waiting = {name: Counter[Destination]() for name in due} | kept

    def _due(self, verb: Verb, at_ms: int, fresh: set[Pick]) -> set[Destination]:
        """Returns the destinations of due messages that the wheel has read and not handed over."""
        seen = verb.seen.get(self.bucket.bucket.log, set())
        read_below = next(row for row in range(len(seen) + 1) if row not in seen)
        return {
            self._destination(pick)
            for pick in self.bucket.waiting()
            if pick[0] < read_below and pick not in fresh and pick not in self.bucket.marked
            if self._tick_ms(pick) <= at_ms
        }

    def _tick_ms(self, pick: Pick) -> int:
        delays = self.bucket.audit.world.plan.delays
        assert delays is not None
        tick_ms = max(1, delays.tick_ms)
        return -(-self.bucket.plan(pick).due_ms(pick[1]) // tick_ms) * tick_ms

    def _destination(self, pick: Pick) -> Destination:
        plan = self.bucket.plan(pick)
        return plan.subject, plan.generation, plan.member
