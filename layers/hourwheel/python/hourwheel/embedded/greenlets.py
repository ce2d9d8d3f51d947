"""Runs the functions, which block, on the event loop: each in a greenlet that lets others run while it waits.

A thread for each request would hand the interpreter lock to and fro a dozen times a request; measured with 16 clients
that send one message at a time, that was a third of the server's time. Waits of a thousand consumers cost a thousand
small stacks. Code in threads may use the same store, blobs and arrivals: outside a greenlet they block as usual.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.adapters.sqlite_session import SqliteWrites
from hourwheel.ports import Blobs, Store

T = TypeVar("T")


class GreenletRunner:
    """The greenlets of one event loop. ``attach`` it before the first ``run``."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called on the loop's thread."""
        self._loop = loop
        self._thread = threading.get_ident()

    @property
    def on_loop(self) -> bool:
        """Whether the caller runs on the loop's thread, in a greenlet or not."""
        return self._loop is not None and not self._loop.is_closed() and self._thread == threading.get_ident()

    @property
    def inside(self) -> bool:
        """Whether the caller runs in a greenlet."""
        return getcurrent().parent is not None

    async def run(self, work: Callable[[], T]) -> T:
        """Runs the work in a greenlet; on the loop's thread, so it must not compute for long."""
        assert self._loop is not None
        done: asyncio.Future[T] = self._loop.create_future()

        def body() -> None:
            try:
                result = work()
            except StopIteration as error:  # which no future takes
                if not done.cancelled():
                    done.set_exception(RuntimeError(f"StopIteration: {error}"))
            except BaseException as error:
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        greenlet(body).switch()
        return await done

    def pause(self, begin: Callable[[Callable[[], object]], None], seconds: float | None = None) -> None:
        """Lets other greenlets run until the function that ``begin`` gets is called, from any thread, or time is up."""
        loop = self._loop
        assert loop is not None
        fibre = getcurrent()
        over = False
        timer: asyncio.TimerHandle | None = None

        def go_on() -> None:
            nonlocal over
            if not over:
                over = True
                if timer is not None:
                    timer.cancel()
                fibre.switch()

        if seconds is not None:
            timer = loop.call_later(seconds, go_on)
        try:
            begin(partial(loop.call_soon_threadsafe, go_on))
        except BaseException:
            over = True
            if timer is not None:
                timer.cancel()
            raise
        assert fibre.parent is not None
        fibre.parent.switch()

    def soon(self, work: Callable[[], None]) -> None:
        """Runs work on the loop's thread, from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(work)

    def aside(self, executor: Executor, work: Callable[[], T]) -> T:
        """Runs work in a thread of the executor meanwhile."""
        future = executor.submit(work)
        self.pause(lambda go_on: future.add_done_callback(lambda _: go_on()))
        return future.result()


class GreenletStore(SqliteWrites):
    """The SQLite store for greenlets and threads. Reads run at once. A transaction lets other greenlets run, and
    theirs are run with it, here, where nobody competes for the interpreter; its sync has a thread."""

    def __init__(self, store: SqliteStore, greenlets: GreenletRunner) -> None:
        self._store = store
        self._fibres = greenlets
        self.get = store.get
        self.get_many = store.get_many
        self.scan = store.scan
        self.counter = store.counter
        self.counters = store.counters

    def transact(self, work: Callable[[Store], T]) -> T:
        if not self._fibres.inside:
            # The loop itself would wait for what only it can run.
            assert not self._fibres.on_loop
            return self._store.transact(work)
        ticket: Any = None

        def begin(go_on: Callable[[], object]) -> None:
            nonlocal ticket
            ticket = self._store.submit(work, notify=go_on, invite=self._invite)

        self._fibres.pause(begin)
        result: T = ticket.outcome()
        return result

    def _invite(self) -> None:
        # Behind what is ready to run: other requests that have arrived join the group.
        self._fibres.soon(self._store.lead)


class GreenletBlobs:
    """Blobs for greenlets and threads: their files are read and written in threads meanwhile."""

    def __init__(self, blobs: Blobs, greenlets: GreenletRunner, executor: Executor) -> None:
        self._blobs = blobs
        self._fibres = greenlets
        self._executor = executor

    def put(self, key: str, data: bytes) -> None:
        self._aside(lambda: self._blobs.put(key, data))

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._aside(lambda: self._blobs.get(key, offset=offset, length=length))

    def list(self, prefix: str) -> list[str]:
        return self._aside(lambda: self._blobs.list(prefix))

    def delete(self, key: str) -> None:
        self._aside(lambda: self._blobs.delete(key))

    def _aside(self, work: Callable[[], T]) -> T:
        return self._fibres.aside(self._executor, work) if self._fibres.inside else work()
