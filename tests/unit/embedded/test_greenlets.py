"""Greenlets are used again, and none goes on in the place of another."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from greenlet import getcurrent

from hourwheel.embedded import greenlets
from hourwheel.embedded.greenlets import GreenletRunner, Resume


class Pauses:
    """Greenlets that have paused, by name, and the steps of each."""

    def __init__(self, runner: GreenletRunner) -> None:
        self.runner = runner
        self.paused: dict[str, Resume] = {}
        self.done: list[str] = []
        self.used: set[int] = set()

    def work(self, name: str, between: Callable[[], None] = lambda: None) -> Callable[[], None]:
        """Returns work that calls ``between``, pauses, and ends once it is resumed."""

        def run() -> None:
            self.used.add(id(getcurrent()))
            between()
            self.runner.pause(lambda resume: self.paused.update({name: resume}))
            self.done.append(name)

        return run


def run(steps: Callable[[Pauses], Coroutine[Any, Any, None]]) -> None:
    async def attached() -> None:
        runner = GreenletRunner()
        runner.attach(asyncio.get_running_loop())
        await asyncio.wait_for(steps(Pauses(runner)), 60)

    asyncio.run(attached())


def test_a_greenlet_whose_work_has_ended_does_the_next_work() -> None:
    async def steps(pauses: Pauses) -> None:
        for name in ("a", "b", "c"):
            pauses.runner.spawn(pauses.work(name))
            pauses.paused[name].now()
        assert pauses.done == ["a", "b", "c"]
        assert len(pauses.used) == 1

    run(steps)


def test_work_that_pauses_keeps_its_greenlet() -> None:
    async def steps(pauses: Pauses) -> None:
        for name in ("a", "b"):
            pauses.runner.spawn(pauses.work(name))
        pauses.paused["b"].now()
        pauses.runner.spawn(pauses.work("c"))
        pauses.paused["a"].now()
        pauses.paused["c"].now()
        assert pauses.done == ["b", "a", "c"]
        assert len(pauses.used) == 2

    run(steps)


def test_work_that_another_greenlet_spawned_outlives_it() -> None:
    async def steps(pauses: Pauses) -> None:
        pauses.runner.spawn(pauses.work("outer", lambda: pauses.runner.spawn(pauses.work("inner"))))
        pauses.paused["outer"].now()
        while "inner" not in pauses.paused:
            await asyncio.sleep(0)
        pauses.runner.spawn(pauses.work("later"))
        pauses.paused["inner"].now()
        pauses.paused["later"].now()
        assert pauses.done == ["outer", "inner", "later"]

    run(steps)


def test_few_idle_greenlets_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greenlets, "_IDLE_GREENLETS", 2)

    async def steps(pauses: Pauses) -> None:
        names = [str(number) for number in range(5)]
        for name in names:
            pauses.runner.spawn(pauses.work(name))
        for name in names:
            pauses.paused[name].now()
        assert pauses.done == names
        assert len(pauses.runner._idle) == 2

    run(steps)
