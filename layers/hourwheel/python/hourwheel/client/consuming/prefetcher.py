"""Pulls and settles in two threads, so that the threads that handle messages do neither. ``pull_session.py`` decides
what the two threads do."""

import threading
from collections.abc import Callable
from typing import TypeVar

from hourwheel.client.api import Api
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.consuming.dozing import QueueListener
from hourwheel.client.consuming.held_messages import LookResult
from hourwheel.client.consuming.pull_session import PullSession
from hourwheel.client.consuming.settlements import settle_timeout
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.transport.steps import Steps, finished
from hourwheel.locks import Condition, gives_back

T = TypeVar("T")


class Prefetcher(PullSession[Condition]):
    """Pulls ahead for one run of a consumer: ``start``, ``next`` from any thread, ``stop``, ``finish``."""

    def __init__(self, options: PrefetchOptions[Api]) -> None:
        # Each thread has connections of its own: cutting a pull must not cut a settlement.
        self._pulls = options.connect()
        self._settles = options.connect(timeout_seconds=settle_timeout(options.lease_seconds))
        super().__init__(options, self._pulls, self._settles, QueueListener(), Condition)
        self._puller, self._settler = (
            threading.Thread(target=self._run, args=(work,), name=f"hourwheel-{name}", daemon=True)
            for name, work in (("puller", self.pulling), ("settler", self.settling))
        )

    def start(self, handlers: int | None = None) -> None:
        """Starts to pull. ``handlers`` is the number of handlers that the stock follows."""
        self._stock.follow(handlers)
        self._puller.start()
        self._settler.start()

    def next(self) -> Delivery | None:
        """Waits for a message and returns it, or returns None once the prefetcher is stopped and drained."""
        if self._unordered and not self._stopping and (delivery := self._next_at_once()) is not None:
            return delivery
        return self._wait_for_next()

    @gives_back
    def _wait_for_next(self) -> Delivery | None:
        with self._lock:
            while True:
                since = self._ready.notifications  # a signal handler may call ``stop`` behind the look
                ready, delivery, wait_seconds = self._look_for_message()
                if ready:
                    return delivery
                self._note_idle(1)
                try:
                    self._ready.wait(wait_seconds, since)
                finally:
                    self._note_idle(-1)

    def next_batch(self) -> list[Delivery]:
        """Waits for a message, and returns it with those that are there, up to ``max_messages``. Returns no message
        once the prefetcher is stopped and drained. The messages of an ordered group have different keys."""
        return self._with_more(self.next())

    def finish(self) -> None:
        """Releases the messages that nobody has begun, and waits until all outcomes are settled.

        Called after ``stop``, when no thread handles messages any more. Returns after 10 s at the latest: the messages
        that are not settled by then come again when their leases end.
        """
        finished(self._listener.close())
        if self._puller.is_alive():
            self._puller.join(self._pull_end_seconds())
        self._pulls.close()  # cuts a pull that still waits; the messages of its answer come again when their lease ends
        if self._puller.is_alive():
            self._puller.join()
        finished(self._listener.give_back(self._doze.given_back()))
        self._end()
        self._settler.join()
        self._report_unsettled()
        self._settles.close()

    def _run(self, work: Callable[[], Steps[None]]) -> None:
        """Works on a thread. An unexpected error ends the run: nobody waits for a thread that has ended."""
        try:
            finished(work())
        except BaseException as error:
            self.fail(error)

    @gives_back
    def _wait(self, condition: Condition, look: Callable[[], LookResult[T]]) -> T | None:
        with self._lock:
            while not (seen := look()).ready:
                condition.wait(seen.wait_seconds)
            return seen.result

    def _wake_handlers(self) -> None:
        self._ready.notify_all()
