"""Simulates wake-up queues: wake-ups are late, lost, doubled and forged, and queues are deleted by hand."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from hourwheel.errors import Throttled
from hourwheel.model.pulls import WakeupQueue
from tests.simulation.world import World

T = TypeVar("T")


class Rates(Protocol):
    """The rates at which wake-ups and queues meet faults."""

    @property
    def lost(self) -> float: ...
    @property
    def doubled(self) -> float: ...
    @property
    def forged(self) -> float: ...
    @property
    def refused(self) -> float: ...
    @property
    def deleted(self) -> float: ...


@dataclass
class SimulatedQueues:
    """``WakeupQueues`` of the run. A wake-up is under way for up to 300 ms, and nobody receives one that is older than
    a minute."""

    world: World
    rates: Rates
    made: set[str] = field(default_factory=set)
    waiting: dict[str, list[int]] = field(default_factory=dict)

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        if fresh or name not in self.waiting:
            self.made.add(name)
            self.waiting.setdefault(name, [])
        return WakeupQueue(name, "simulated")

    def wake(self, name: str) -> bool:
        chance = self.world.rng.random
        if not self.world.alone and chance() < self.rates.refused and not self.calm:
            raise Throttled("SQS")
        self.world.record("wake", name)
        if name not in self.made:
            return False
        if self.calm or chance() >= self.rates.lost:
            for _ in range(1 + (chance() < self.rates.doubled)):
                self.world.later(int(300 * chance() ** 3), partial(self._arrive, name))
        return True

    def remove(self, name: str) -> None:
        self.made.discard(name)
        self.waiting.pop(name, None)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]  # one after the other: a run is repeatable

    calm: bool = False

    def forge(self) -> None:
        for name in sorted(self.made):
            if self.world.rng.random() < self.rates.forged:
                self._arrive(name)

    def delete_some(self) -> None:
        for name in sorted(self.made):
            if not self.calm and self.world.rng.random() < self.rates.deleted:
                self.world.record("deleted by hand", name)
                self.made.discard(name)
                self.waiting[name] = []

    def give_back(self, name: str) -> None:
        self.world.record("given back", name)
        self.world.later(int(50 * self.world.rng.random()), partial(self._arrive, name))

    def receive(self, name: str) -> str | None:
        """Returns the field that a consumer sends in its next pull; None while no wake-up is there."""
        if name not in self.made:
            return "missing"
        found = [at_ms for at_ms in self.waiting[name] if self.world.now_ms - at_ms < 60_000]
        self.waiting[name] = []
        return "woken" if found else None

    def _arrive(self, name: str) -> None:
        if name in self.made:
            self.waiting[name].append(self.world.now_ms)
