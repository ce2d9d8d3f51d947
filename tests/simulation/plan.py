"""What a seed decides before its run begins: the actors, the sizes, and which faults there are.

Each seed enables a random subset of everything (swarm testing): a bug that one kind of fault
would hide is found by a seed that has no such fault.
"""

from dataclasses import dataclass
from random import Random

DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Rates per store call."""

    crash: float = 0.0
    throttle: float = 0.0
    lose: float = 0.0
    late: float = 0.0
    pause: float = 0.0
    stale: float = 0.0


NONE = Faults()


@dataclass(frozen=True, kw_only=True)
class Plan:
    seed: int
    transactional: bool
    trims: bool
    """Whether ``trim`` removes at once; otherwise items go when their time has come, as in DynamoDB."""
    calls: int
    switch: float
    latency_ms: int
    skew_ms: int
    long_pauses: bool
    budget_seconds: float
    directory_seconds: float
    inline_bytes: int
    faults: Faults
    subjects: tuple[str, ...]
    queues: int
    retention_seconds: int
    groups: tuple[str, ...]
    max_attempts: int
    lease_seconds: int
    producers: int
    consumers: int
    sweepers: int
    keyed: float
    resends: bool
    spanning: bool
    operators: int
    moves: tuple[str, ...]
    quiet_days: bool
    empty_rows: int


_FAULTS = {"crash": 0.02, "throttle": 0.08, "lose": 0.10, "late": 0.04, "pause": 0.04, "stale": 0.6}
_MOVES = ("redrive", "drop", "seek", "retention", "attempts", "lag", "latest", "queues")
_DELETIONS = ("delete-group", "delete-subject")


def draw(seed: int) -> Plan:
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
        directory_seconds=rng.choice((0.0, 2.0, 2.0)),
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
    )
