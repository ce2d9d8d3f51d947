"""Runs each test on the loop of the standard library and on uvloop's."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop

T = TypeVar("T")

Run = Callable[[Coroutine[Any, Any, T]], T]

LONG_SECONDS = 60.0  # only a broken test waits this long


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run[Any]:
    """Runs a coroutine to its end. Fails where it leaves a task behind."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    async def watched(work: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout(LONG_SECONDS):
            result = await work
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"
        return result

    def start(work: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(watched(work))

    return start


async def until(true: Callable[[], object]) -> None:
    """Lets the other tasks run until something holds that threads of the fake server decide too."""
    while not true():
        await asyncio.sleep(0.001)
