"""Wakes tasks that wait for a change."""

import asyncio
from collections import deque


class AsyncCondition:
    """Does for the tasks of one event loop what ``locks.Condition`` does for threads. It needs no lock: nothing changes
    between the look of a task and its wait."""

    def __init__(self, lock: object = None) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def notify(self, n: int = 1) -> None:
        while n > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():  # otherwise its task is cancelled, and another one goes on in its place
                waiter.set_result(None)
                n -= 1

    def notify_all(self) -> None:
        self.notify(len(self._waiters))

    async def wait(self, seconds: float | None) -> None:
        """Waits until another task notifies this one, at most for this time (None: without a limit)."""
        if seconds == 0:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.notify()  # this task was woken for what another one has to do now
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
