"""Declares the plan of a run: the actors, the sizes, and the faults."""

from dataclasses import dataclass

from hourwheel.model.group_settings import WhenDead
from hourwheel.model.groups import RetryPolicy, TagFilter
from tests.simulation.delays import Delays
from tests.simulation.faults import Faults

DAY_MS = 86_400_000

AT_ONCE = RetryPolicy(first_seconds=0)
"""The retry policy without pauses."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    seed: int
    transactional: bool
    trims: bool
    """Whether ``trim`` removes items at once. Otherwise TTL removes them after their expiry, as in DynamoDB."""
    calls: int
    switch: float
    latency_ms: int
    skew_ms: int
    long_pauses: bool
    budget_seconds: float
    registry_seconds: float
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
    start_ms: int = 0
    """The time within an hour at which the run begins."""
    retry: RetryPolicy = AT_ONCE
    own_retry: RetryPolicy | None = None
    """The first group's own policy."""
    delays: Delays | None = None
    choices: tuple[str, ...] = ()
    """The ways in which a canceller changes all messages that are due at one time: ``cancel_chosen``,
    ``move_chosen``."""
    couriers: int = 0
    """The number of actors that push for the first group."""
    archivists: int = 0
    longest_pause_ms: int = 90_000
    """The longest pause of a process where ``long_pauses`` is set."""
    drift: float = 0.0
    """The largest rate at which a clock gains or loses, until it is wrong by ``skew_ms``."""
    cells: int = 0
    """The number of cells beside the home cell."""
    engine: str = ""
    """The real store that runs beside the simulated one: ``sqlite``, ``dynamodb``, or none."""
    together: bool = False
    """All actors are requests of one process: they share its caches, and crash together."""
    filters: tuple[TagFilter, ...] = ()
    """The filters of the last groups. Without any, messages have no tags."""
    tag_room: int | None = None
    """The largest summary of tags in bytes, small enough that batches have to be read. None: the rest of a unit."""
    answer_bytes: int = 0
    """The most bytes of messages in an answer, small enough to divide small batches. 0: the limit of Lambda."""
    max_in_flight: int = 0
    messages_per_second: int = 0
    """The limits of each group of the plan (0: none)."""
    ordered: bool = False
    """The groups are ordered, and messages have keys."""
    max_held: int = 10_000
    max_parked: int = 1_000_000
    parked_block: int = 2  # the messages of a key that a state keeps unpacked, and those of a block
    when_dead: WhenDead = "continue"
    misuse: bool = False
    """Producers use an idempotency key again for another batch."""
    numbered: bool = False
    """Producers number their batches with a key, and repeat the last one however long it takes."""
    broadcast_seconds: int = 0
    """The last group broadcasts, and forgets a consumer that was away for this time. 0: it does not."""
    concurrency: int = 1
    """The number of threads of a pusher."""
    steady: float = 0.0
    """The share of a consumer's work in which it pulls for its group, and acknowledges its last pull by the same call.
    0: it pulls for any group, and settles in any way."""
    alone_pulls: int = 3
    """The pulls after which a row grows for a steady consumer."""
    grows_ms: int = 2_000
    shares: int = 1
    """The largest number of shares among which sweeps divide the subjects. It changes from one sweep to the next."""
    crowd: int = 0
    """The number of batches that wait at the beginning for a crowd of steady consumers, each of which takes few at a
    time. 0: there is none."""
    has_spoilt_record: bool = False
    """The record of a subject cannot be decoded; it comes before all others."""
    large_bytes: int = 0
    """Batches are long, and a third of their messages takes this much more. 0: all are short."""

    @property
    def clocks_change(self) -> bool:
        """Returns whether a clock may be set or may drift, so that its earlier readings do not bound later ones."""
        return bool(self.faults.clock or self.drift)
