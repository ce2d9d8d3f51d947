"""Runs handlers step by step: on the thread of a test, or in its event loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from hourwheel.apps.testing.server import Steps


class StepRunner:
    """Runs steps on the thread of a test. Asynchronous handlers run in an event loop of the runner."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, steps: Steps) -> int:
        """Runs all steps, and returns the number of messages that were handled. Raises ``RuntimeError`` for an
        asynchronous handler if an event loop runs already on this thread."""
        error: BaseException | None = None
        while True:
            try:
                work = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                return int(end.value)
            error = self._error_of(work)

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _error_of(self, work: Coroutine[Any, Any, None]) -> BaseException | None:
        if _loop_runs():
            work.close()  # otherwise Python warns that the coroutine was never awaited
            return RuntimeError("an event loop runs already: await queue.run_async() or queue.advance_async(...)")
        self._runner = self._runner or asyncio.Runner()
        try:
            self._runner.run(work)
        except BaseException as error:
            return error
        return None


async def awaited(steps: Steps) -> int:
    """Runs all steps in the event loop of the caller, and returns the number of messages that were handled."""
    error: BaseException | None = None
    while True:
        try:
            work = next(steps) if error is None else steps.throw(error)
        except StopIteration as end:
            return int(end.value)
        error = None
        try:
            await work
        except BaseException as raised:
            error = raised


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
