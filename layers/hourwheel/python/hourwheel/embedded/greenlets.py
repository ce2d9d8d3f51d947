"""Runs blocking functions on the event loop, each in a greenlet. While one waits, others run.

With a thread for each request, the interpreter lock would change hands a dozen times a request. With 16 clients that
send one message at a time, this took a third of the server's time. A consumer that waits costs one small stack. Code in
threads may use the same store, blobs and wakeups: outside a greenlet they block as usual.

Measured on two cores, with a thread for each request and with greenlets: 11 and 2.3 context switches a request, and 330
and 200 us of the server's CPU for a single message. The rates are 137 k and 225 k messages a second in batches of 100.
The package greenlet (MIT and PSF, the base of SQLAlchemy's asyncio support) is a dependency of the server alone:
functions on Lambda have none.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

from hourwheel.adapters.sqlite.group_commit import Ticket
from hourwheel.adapters.sqlite.session import SqliteWrites
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.ports.storage import Blobs, Store

T = TypeVar("T")

# Kept for later work, 20 KB each: a new one takes 8 us of a small request, a used one 2 to 3. Further ones end.
_IDLE_GREENLETS = 64


class Resume:
    """Resumes a paused greenlet. Any thread may call it; the loop resumes the greenlet soon. ``now`` resumes the
    greenlet at once, and returns when the greenlet has paused again or ended: only the loop's thread may call it,
    outside of greenlets. Only the first call of either has an effect."""

    __slots__ = ("_loop", "now")

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], None]) -> None:
        self._loop = loop
        self.now = now

    def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self.now)


class GreenletRunner:
    """Runs greenlets on one event loop, to which ``attach`` binds it before the first ``run``."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._idle: list[Any] = []
        self.before_commit: Callable[[], object] = lambda: None
        """Called on the loop's thread while a transaction runs. Transactions that begin within the call join that
        one."""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Binds the runner to the loop. Called on the loop's thread."""
        self._loop = loop
        self._thread = threading.get_ident()

    @property
    def attached(self) -> bool:
        """Whether there is a loop that has not ended."""
        return self._loop is not None and not self._loop.is_closed()

    @property
    def on_loop(self) -> bool:
        """Whether the caller runs on the loop's thread, in a greenlet or not."""
        return self._loop is not None and not self._loop.is_closed() and self._thread == threading.get_ident()

    @property
    def inside(self) -> bool:
        """Whether the caller runs in a greenlet."""
        return getcurrent().parent is not None

    def spawn(self, work: Callable[[], None]) -> None:
        """Runs ``work``, which raises nothing, in a greenlet until it pauses for the first time or ends. Called on the
        loop's thread."""
        if self.inside:
            # A greenlet that is started here returns to this greenlet when it pauses, which may do other work by then.
            self.soon(partial(self.spawn, work))
        elif self._idle:
            self._idle.pop().switch(work)
        else:
            worker = greenlet(self._work)
            worker.switch()
            worker.switch(work)

    def _work(self) -> None:
        """Does the work of one ``spawn`` after the other, because a new greenlet costs more than a small request. Takes
        the first work as it takes later ones: a greenlet keeps its arguments until it ends."""
        current = getcurrent()
        while True:
            assert current.parent is not None
            work = current.parent.switch()
            work()
            del work  # it holds a request with its body, and the connection
            if len(self._idle) >= _IDLE_GREENLETS:
                return
            self._idle.append(current)

    async def run(self, work: Callable[[], T]) -> T:
        """Runs ``work`` in a greenlet and returns its result or raises its error.

        The greenlet runs on the loop's thread, so ``work`` must not compute for long.
        """
        assert self._loop is not None
        done: asyncio.Future[T] = self._loop.create_future()

        def body() -> None:
            try:
                result = work()
            except StopIteration as error:  # a future accepts no StopIteration
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

    def pause(self, begin: Callable[[Resume], None], seconds: float | None = None) -> None:
        """Pauses the current greenlet, and lets others run. Calls ``begin`` with a ``Resume``; the greenlet is resumed
        when a thread calls that, or after ``seconds``. Raises the error of ``begin``, without a pause."""
        loop = self._loop
        assert loop is not None
        current = getcurrent()
        over = False
        timer: asyncio.TimerHandle | None = None

        def resume() -> None:
            nonlocal over
            if not over:
                over = True
                if timer is not None:
                    timer.cancel()
                current.switch()

        if seconds is not None:
            timer = loop.call_later(seconds, resume)
        try:
            begin(Resume(loop, resume))
        except BaseException:
            over = True
            if timer is not None:
                timer.cancel()
            raise
        assert current.parent is not None
        current.parent.switch()

    def soon(self, work: Callable[[], None]) -> None:
        """Schedules ``work`` on the loop's thread. Called from any thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(work)

    def aside(self, executor: Executor, work: Callable[[], T]) -> T:
        """Runs ``work`` in a thread of the executor while other greenlets run. Returns its result or raises its
        error."""
        future = executor.submit(work)
        self.pause(lambda resume: future.add_done_callback(lambda _: resume()))
        return future.result()


class GreenletStore(SqliteWrites):
    """Offers the SQLite store to greenlets and threads.

    Reads run at once. A transaction pauses its greenlet. The loop's thread then runs the transactions of all paused
    greenlets as one group, so that no threads compete for the interpreter lock. A thread of its own syncs the group.
    """

    def __init__(self, store: SqliteStore, greenlets: GreenletRunner) -> None:
        self._store = store
        self._greenlets = greenlets
        self._notify = self._wake  # one object for all tickets, so that a group notifies all owners in one call
        self.get = store.get
        self.get_many = store.get_many
        self.get_keys = store.get_keys
        self.scan = store.scan
        self.counter = store.counter
        self.counters = store.counters

    def transact(self, work: Callable[[Store], T]) -> T:
        if not self._greenlets.inside:
            # Code of the loop outside a greenlet would wait for a transaction that only the loop can run.
            assert not self._greenlets.on_loop
            return self._store.transact(work)
        current = getcurrent()
        ticket = self._store.submit(work, notify=self._notify, invite=self._invite, owner=current)
        assert current.parent is not None
        current.parent.switch()
        result: T = ticket.outcome()
        return result

    def _wake(self, tickets: list[Ticket]) -> None:
        """Resumes the greenlets of a group, one after the other. Called from any thread. Claims that joined a
        transaction go first: their consumers wait for messages, and sending each answer takes the kernel a tenth of a
        millisecond."""
        self._greenlets.soon(partial(_go_on, deque(sorted(tickets, key=_joined_first))))

    def _invite(self) -> None:
        # The loop calls this after the callbacks that are ready now, so that requests that have arrived join the group.
        self._greenlets.soon(self._lead)

    def _lead(self) -> None:
        self._store.lead(self._greenlets.before_commit)


class LoopStore(GreenletStore):
    """Offers the SQLite store to threads whose transactions are short. The loop's thread runs them as it runs those of
    greenlets, so that claims of waiting pulls join them."""

    def transact(self, work: Callable[[Store], T]) -> T:
        if self._greenlets.inside or not self._greenlets.attached:
            return super().transact(work)
        assert not self._greenlets.on_loop
        done = threading.Lock()
        done.acquire()
        ticket = self._store.submit(work, notify=lambda _: done.release(), invite=self._invite)
        done.acquire()
        result: T = ticket.outcome()
        return result


def _joined_first(ticket: Ticket) -> bool:
    return not ticket.joined


def _go_on(tickets: deque[Ticket]) -> None:
    try:
        while tickets:
            tickets.popleft().owner.switch()
    finally:
        # A greenlet has raised, as only the end of the process makes it do: the others are resumed all the same.
        if tickets:
            _go_on(tickets)


class GreenletBlobs:
    """Offers blobs to greenlets and threads: a call from a greenlet runs in a thread while other greenlets run."""

    def __init__(self, blobs: Blobs, greenlets: GreenletRunner, executor: Executor) -> None:
        self._blobs = blobs
        self._greenlets = greenlets
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
        return self._greenlets.aside(self._executor, work) if self._greenlets.inside else work()
