"""Runs a consumer in threads or in tasks, so that one scenario tests both."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import uvloop

from hourwheel.client import Api, AsyncConsumer, Consumer
from hourwheel.client.options import PrefetchOptions
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds

LONG_SECONDS = 120.0
MOST_WAITING = 10  # handlers of one consumer that wait at a time, each for a thread
SHORT = {"drain_seconds": 0.1, "settle_linger_seconds": 0.02, "wait_seconds": 0.2}

Start = Callable[..., "Run"]
"""Makes a run from a server, a handler and options."""


def prefetch_options(server: FakeServer) -> PrefetchOptions[Api]:
    return PrefetchOptions(
        connect=functools.partial(Api, server.url),
        subject="orders",
        group="billing",
        consumer_id="host-1",
        max_messages=10,
        wait_seconds=0.2,
        lease_seconds=30,
        settle_linger_seconds=0.0,
        ids=StillIds(),
    )


class Run:
    """``run`` of a consumer on a thread of its own, and stopped at the end. ``waits``: the handler waits for a thread,
    and decides by returning or raising. ``lists``: it takes lists of messages."""

    def __init__(
        self,
        server: FakeServer,
        handle: Callable[[Any], object],
        *,
        waits: bool = False,
        lists: bool = False,
        **options: Any,
    ) -> None:
        self.waits = waits
        self.consumer = self._made(
            server.url, "orders", "billing", ids=options.pop("ids", StillIds()), **SHORT | options
        )
        (self.consumer.batch_handler if lists else self.consumer.handler)(self._handler(handle))
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    @property
    def lost_messages(self) -> int:
        lost: int = self.consumer.lost_messages
        return lost

    def _made(self, *names: str, **options: Any) -> Any:
        return Consumer(*names, **options)

    def _handler(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        return handle

    def _work(self) -> None:
        self.consumer.run()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.join()

    def stop(self) -> None:
        self.consumer.stop()

    def join(self, seconds: float = LONG_SECONDS) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive()


class TaskRun(Run):
    """The run of an asynchronous consumer, with a loop of its own. Handlers that wait do so in threads."""

    def __init__(self, *given: Any, loop: Callable[[], asyncio.AbstractEventLoop], **options: Any) -> None:
        self._loop = loop()
        self._loop.set_default_executor(ThreadPoolExecutor(MOST_WAITING))
        super().__init__(*given, **options)

    def _made(self, *names: str, **options: Any) -> Any:
        return AsyncConsumer(*names, **options)

    def _handler(self, handle: Callable[[Any], object]) -> Callable[[Any], object]:
        async def handle_in_task(message: Any) -> None:
            if self.waits:
                await asyncio.to_thread(handle, message)
                return
            await asyncio.sleep(0)
            handle(message)

        return handle_in_task

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._watched())

    async def _watched(self) -> None:
        await self.consumer.run()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks are left: {left}"

    def stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.consumer.stop)


RUNS: dict[str, Start] = {
    "threads": Run,
    "asyncio": functools.partial(TaskRun, loop=asyncio.new_event_loop),
    "uvloop": functools.partial(TaskRun, loop=uvloop.new_event_loop),
}
