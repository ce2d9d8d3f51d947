"""Runs scenarios: what happens on which deployment, what must hold, and what is aimed at."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hourwheel.deployment.deployment import Deployment
from hourwheel.model.messages import NewMessage
from tests.load.actors import Samples, Traffic
from tests.load.deployment import DEFAULTS, Conditions, SimulatedDeployment
from tests.load.machine import threads_of
from tests.load.result import Result, result_of
from tests.simulation.world import uncollected


@dataclass(frozen=True)
class Bound:
    """A bound of a number of the result. The number must be at least ``least`` and at most ``most``."""

    number: str
    least: float = float("-inf")
    most: float = float("inf")

    def holds(self, result: Result) -> bool:
        return self.least <= result.numbers[self.number] <= self.most

    def __str__(self) -> str:
        bounds = [f"at least {self.least:,g}"] * (self.least > float("-inf"))
        bounds += [f"at most {self.most:,g}"] * (self.most < float("inf"))
        return f"{self.number}: {' and '.join(bounds)}"


@dataclass
class Stage:
    """What a scenario plays on. ``samples`` are those of the actors that the scenario is about."""

    deployment: SimulatedDeployment
    samples: Samples = field(default_factory=Samples)
    library: Deployment = field(init=False)
    """A process that takes no time, for what was there before the run."""
    traffic: Traffic = field(init=False)

    def __post_init__(self) -> None:
        self.library = self.deployment.process()
        self.traffic = Traffic(self.deployment)

    def fill(self, subject: str, batches: int, batch: int) -> None:
        """Stores messages that wait when the run begins."""
        for _ in range(batches):
            now = self.deployment.machine.now
            bodies = [self.traffic.texts.body(now, 0.0) for _ in range(batch)]
            self.library.produce(subject, [NewMessage(body=body) for body in bodies])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """``play`` makes the actors, or lets some time pass and makes others. ``holds``: the bounds that hold today, and
    must. ``aims``: those that do not hold yet. ``numbers``: what is printed of the result. ``quick``: ``make test``
    plays it too."""

    name: str
    says: str
    play: Callable[[Stage], None]
    seconds: float
    conditions: Conditions = DEFAULTS
    holds: tuple[Bound, ...] = ()
    aims: tuple[Bound, ...] = ()
    numbers: tuple[str, ...] = ()
    quick: bool = False


@dataclass(frozen=True)
class Played:
    scenario: Scenario
    result: Result
    cpu_seconds: float

    @property
    def broken(self) -> list[Bound]:
        return [bound for bound in self.scenario.holds if not bound.holds(self.result)]

    @property
    def not_yet(self) -> list[Bound]:
        return [bound for bound in self.scenario.aims if not bound.holds(self.result)]

    @property
    def reached(self) -> list[Bound]:
        """The aims that hold: they belong to what must hold."""
        return [bound for bound in self.scenario.aims if bound.holds(self.result)]


def play(scenario: Scenario) -> Played:
    """Makes one run, which the seed of the conditions determines completely."""
    began = time.process_time()
    with uncollected():
        stage = Stage(SimulatedDeployment(scenario.conditions))
        with threads_of(stage.deployment.machine):
            scenario.play(stage)
            begins, used = stage.deployment.machine.now, stage.deployment.usage.copy()
            stage.deployment.run(scenario.seconds)
            result = result_of(stage.deployment, stage.samples, begins, used)
            stage.deployment.machine.end_all()
    return Played(scenario, result, time.process_time() - began)
