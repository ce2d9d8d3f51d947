"""Says for each room of the protocol which modules get mutants, and which checks have to find them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pytest

from tests.mutants.mutations import LIBRARY
from tests.simulation.directed import EVERY_SCENE, Case, cases, run_case
from tests.simulation.schedule import simulate

# The library is imported before pytest begins, so that one import serves all mutants.
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")


@dataclass(frozen=True)
class Room:
    """``modules``: patterns of paths in the library. ``tests``: what pytest gets, the fastest first. ``scenes``: words
    of the scenes of directed schedules; none for all scenes."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    scenes: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        found = {path for pattern in self.modules for path in LIBRARY.glob(pattern) if path.name != "__init__.py"}
        return sorted(str(path.relative_to(LIBRARY)) for path in found)


STEPS = tuple(
    f"tests/unit/{room}"
    for room in ("producing", "pulling", "settling", "pull_log", "ordered", "dead_letters", "groups")
)
"""The tests of a message's way through a group."""

ROOMS = {
    "logs": Room(("logs/*.py",), ("tests/unit/logs", *STEPS)),
    "handover": Room(("handover/*.py",), ("tests/unit/handover", *STEPS, "tests/unit/delay")),
    "pull_log": Room(("pull_log/*.py", "pull_log/claiming/*.py"), ("tests/unit/pull_log", *STEPS)),
    "ordered": Room(("ordered/*.py",), ("tests/unit/ordered", *STEPS)),
    "producing": Room(("producing/*.py",), ("tests/unit/producing", "tests/unit/cells", *STEPS)),
    "settling": Room(("settling/*.py",), ("tests/unit/settling", *STEPS)),
    "pulling": Room(("pulling/*.py",), ("tests/unit/pulling", *STEPS)),
    "dead_letters": Room(("dead_letters/*.py",), ("tests/unit/dead_letters", *STEPS)),
    "groups": Room(("groups/*.py",), ("tests/unit/groups", "tests/unit/operations", *STEPS)),
    "dozing": Room(("dozing/*.py",), ("tests/unit/dozing", "tests/simulation/test_dozing.py", "tests/unit/pulling")),
    "delay": Room(
        ("delay/*.py", "delay/lists/*.py", "buckets/*.py"),
        ("tests/unit/delay", "tests/unit/api/test_delayed_list.py", "tests/unit/buckets", "tests/unit/sweep"),
        ("delayed", "due", "owner", "bucket", "wheel", "cancel", "move", "archive"),
    ),
    "registry": Room(
        ("registry/*.py",),
        ("tests/unit/registry", "tests/unit/cells", *STEPS, "tests/unit/sweep"),
        ("queue", "operators", "move", "cell", "parts"),
    ),
    "cells": Room(
        ("cells/*.py",),
        ("tests/unit/cells", "tests/unit/registry", *STEPS, "tests/unit/sweep"),
        ("queue", "operators", "move", "cell", "parts"),
    ),
    "sweep": Room(("sweep/*.py", "retention/*.py"), ("tests/unit/sweep", "tests/unit/retention", "tests/unit/delay")),
    "push": Room(("push/*.py",), ("tests/unit/push", "tests/unit/pulling"), ("target",)),
}


@dataclass(frozen=True)
class Checks:
    """The checks of one room, in the order in which they run. ``directed``: one in this many directed schedules."""

    room: Room
    seeds: range
    directed: int
    chosen: list[Case] = field(default_factory=list)

    @classmethod
    def of(cls, room: Room, seeds: range, directed: int) -> "Checks":
        """Chooses the directed schedules, from the calls that the unchanged code makes."""
        words = room.scenes or ("",)
        scenes = [scene for scene in EVERY_SCENE if any(word in scene.name for word in words)]
        return cls(room, seeds, directed, list(cases(directed, scenes)) if directed else [])

    def finder(self) -> str:
        """Runs the checks, and returns the first that fails; "" if none does."""
        return next(filter(None, (check() for check in self._in_turn())), "")

    def _in_turn(self) -> Iterator[Callable[[], str]]:
        first = islice(self.room.tests, 1)
        yield from (self._pytest(tests) for tests in first)
        yield lambda: _first_seed(self.seeds[: len(self.seeds) // 4])
        yield from (self._pytest(tests) for tests in self.room.tests[1:])
        yield lambda: _first_case(self.chosen)
        yield lambda: _first_seed(self.seeds[len(self.seeds) // 4 :])

    @staticmethod
    def _pytest(tests: str) -> Callable[[], str]:
        return lambda: tests if pytest.main([*_OPTIONS, tests]) else ""


def _first_seed(seeds: Sequence[int]) -> str:
    return next((f"seed {seed}" for seed in seeds if simulate(seed).violation is not None), "")


def _first_case(chosen: list[Case]) -> str:
    return next((f"schedule {case.label!r}" for case in chosen if run_case(case).violation is not None), "")
