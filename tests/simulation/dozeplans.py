"""Draws the plans of runs in which groups doze."""

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.draws import unarchived
from tests.simulation.faults import NONE, Faults
from tests.simulation.plan import AT_ONCE, Plan

_PROMPT_MS = 2_500
"""A message that meets no fault is taken in this time: a second until the next pull of a group that is about to doze,
or the way of a wake-up, and the calls of the store."""

_CROWD_MS = 10_000
"""In a crowd, a message is kept for a consumer that stops for three seconds, and for a second until the next pull of
another one. That one has the others to handle."""

_CROWDS = 0.4
"""The share of the plans that have a crowd."""


@dataclass(frozen=True, kw_only=True)
class DozePlan:
    """The plan of a run. ``lost``, ``doubled``, ``forged``: wake-ups, as rates per wake-up. ``refused``: wake-ups that
    SQS throttles. ``deleted``: queues that an operator deletes, as a rate per message."""

    plan: Plan
    producers: int
    sleepers: int
    messages: int
    rest_seconds: tuple[float, ...]
    lost: float = 0.0
    doubled: float = 0.0
    forged: float = 0.0
    refused: float = 0.0
    deleted: float = 0.0
    slow: float = 0.0
    """The share of pulls whose messages are handled for seconds."""
    back: float = 0.1
    """The share of pulls of which a message is given back."""
    bursts: float = 0.0
    """The share of messages that follow the one before at once."""
    stops: float = 0.0
    """The rate per pull, and per second at the queue, at which a consumer stops."""

    late_seconds: int = 0
    """Consumers begin within this time."""
    busy_share: float = 0.02
    """The share of the pulls of busy consumers that record that the group is busy."""
    crowd: bool = False
    """Consumers handle one pull after the other, so that their rows keep messages (``dozecrowds.py``)."""

    @property
    def loses(self) -> bool:
        """Returns whether a wake-up may be lost, so that a consumer may have to wait for its next own pull."""
        return bool(self.lost or self.deleted or self.plan.faults.crash or self.plan.faults.lose)

    @property
    def prompt_ms(self) -> int:
        """Returns the time within which a message that meets no fault is taken. Where reads may be out of date, the
        pulls of a group that is about to doze may miss it, and the look that follows them finds it."""
        outdated = self.plan.faults.stale > 0
        return _PROMPT_MS + outdated * int(1_000 * self.plan.registry_seconds) + self.crowd * _CROWD_MS

    @property
    def faultless(self) -> bool:
        return not (self.loses or self.refused or self.plan.faults != NONE)


def drawn(seed: int) -> DozePlan:
    """Returns the plan of a seed: one in three without a fault, one with faults that lose no wake-up, one with all."""
    rng = Random(seed ^ 0xD02E)
    kind = seed % 3
    stale = rng.choice((0.0, 0.6, 0.95))
    faults = (
        Faults(stale=stale),
        Faults(stale=stale, pause=rng.choice((0.0, 0.05)), late=rng.choice((0.0, 0.04))),
        Faults(stale=stale, pause=0.03, crash=rng.choice((0.002, 0.01)), throttle=0.04, lose=0.04),
    )[kind]
    base = unarchived(0)
    groups = rng.choice((("a",), ("a", "b"), ("a", "b", "c", "d")))
    plan = replace(
        base,
        seed=seed,
        transactional=False,
        together=False,
        calls=1_000_000,
        faults=faults,
        skew_ms=rng.choice((0, 100)),
        drift=0.0,
        long_pauses=False,
        longest_pause_ms=5_000,
        registry_seconds=rng.choice((2.0, 5.0, 8.0)),
        subjects=("s",),
        queues=rng.choice((1, 3)),
        groups=groups,
        max_attempts=16,
        retry=AT_ONCE,
        lease_seconds=30,
        ordered=False,
        filters=(),
        broadcast_seconds=rng.choice((0, 0, 86_400)),
        max_in_flight=0,
        messages_per_second=0,
        delays=None,
        couriers=0,
        cells=0,
        archivists=0,
        own_retry=None,
        answer_bytes=0,
        quiet_days=False,
        switch=0.5,
        latency_ms=2 if len(groups) > 2 else rng.choice((2, 20)),
        retention_seconds=259_200,
    )
    rough = kind == 2
    doze = DozePlan(
        plan=plan,
        producers=rng.choice((1, 2, 3)),
        sleepers=rng.choice((1, 2, 3)),
        messages=rng.choice((3, 8, 15)),
        rest_seconds=rng.choice(((0.1, 1.0), (1.0, 4.0), (2.0, 6.0), (2.0, 12.0), (0.1, 40.0))),
        lost=rng.choice((0.2, 1.0)) * rough,
        doubled=rng.choice((0.0, 0.2)),
        forged=rng.choice((0.0, 0.1)),
        refused=0.2 * (kind == 1),
        deleted=0.05 * rough,
        slow=rng.choice((0.0, 0.3, 0.6)),
        back=rng.choice((0.1, 0.5)),
        bursts=rng.choice((0.0, 0.3)),
        stops=rng.choice((0.0, 0.02, 0.2)),
        late_seconds=rng.choice((0, 20)),
        busy_share=rng.choice((0.02, 0.5)),
    )
    rng = Random(seed ^ 0xC40D)
    return with_crowd(doze, rng) if rng.random() < _CROWDS else doze


def with_crowd(doze: DozePlan, rng: Random) -> DozePlan:
    """Returns the plan with several consumers of one queue, which take a message or two at a time of many."""
    plan = replace(doze.plan, queues=1, broadcast_seconds=0, groups=doze.plan.groups[:2], latency_ms=2)
    return replace(
        doze,
        plan=plan,
        crowd=True,
        producers=1,
        sleepers=rng.choice((2, 3)),
        messages=60,
        bursts=rng.choice((0.9, 0.97)),
        back=0.02,
        slow=rng.choice((0.0, 0.05)),
        stops=rng.choice((0.01, 0.03)),
    )
