"""Defines the future of a sent message, which has a lock of its own only once somebody waits for it.

A ``concurrent.futures.Future`` creates a condition with two locks, and enters it for each change of its state. That
would be more than half of the CPU of ``send``, though most futures are done before anybody asks for their result.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING, RUNNING
from typing import Any

from hourwheel.client.records.messages import SendResult
from hourwheel.locks import Condition, give_back, gives_back

_changing = threading.RLock()
"""Guards the state of futures that have no condition yet. A thread that holds it waits for nothing, and calls no code
of the application."""


class SendFuture(Future[SendResult]):
    """The future of the result of a message. Calls ``on_wait`` before a thread waits for the result.

    ``concurrent.futures.wait``, ``as_completed`` and ``asyncio.wrap_future`` take it as any other future: they find a
    condition as soon as they ask for one.
    """

    _state = PENDING
    _result: SendResult | None = None
    _exception: BaseException | None = None

    def __init__(
        self, on_wait: Callable[[], None], on_done: Callable[["Future[SendResult]"], object] | None = None
    ) -> None:
        # Does not call the constructor of the base class, which would create the condition.
        self._on_wait = on_wait
        self._done_callbacks: list[Callable[[Future[SendResult]], object]] = [] if on_done is None else [on_done]

    def __getattr__(self, name: str) -> Any:
        """Creates the condition when it is first asked for."""
        if name != "_condition":
            raise AttributeError(name)
        try:
            with _changing:
                if self._plain:
                    self._waiters: list[Any] = []
                    self._condition = Condition(threading.RLock())
                return self._condition
        except BaseException:
            give_back(_changing)
            raise

    @property
    def _lock(self) -> Any:
        """What the methods of the base class enter, for ``gives_back``."""
        return self._condition

    @property
    def _plain(self) -> bool:
        return "_condition" not in self.__dict__

    @gives_back
    def result(self, timeout: float | None = None) -> SendResult:
        if self._state is not FINISHED:
            self._on_wait()
        return super().result(timeout)

    @gives_back
    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._state is not FINISHED:
            self._on_wait()
        return super().exception(timeout)

    cancel = gives_back(Future.cancel)
    cancelled = gives_back(Future.cancelled)
    running = gives_back(Future.running)
    add_done_callback = gives_back(Future.add_done_callback)
    _done = gives_back(Future.done)

    def done(self) -> bool:
        if self._state is FINISHED:
            return True
        # A future without a condition was not cancelled, because ``cancel`` asks for the condition.
        return not self._plain and self._done()

    def set_running_or_notify_cancel(self) -> bool:
        try:
            with _changing:
                if self._state is FINISHED:
                    return False  # the producer gave the message up, so it must not be sent
                if self._plain:
                    self._state = RUNNING
                    return True
        except BaseException:
            give_back(_changing)
            raise
        return super().set_running_or_notify_cancel()

    def set_result(self, result: SendResult) -> None:
        if self._finish(result, None):
            self._invoke_callbacks()
        else:
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        if self._finish(None, exception):
            self._invoke_callbacks()
        else:
            super().set_exception(exception)

    def _finish(self, result: SendResult | None, exception: BaseException | None) -> bool:
        """Finishes a future that has no condition and is not finished. Returns whether it did."""
        try:
            with _changing:
                if not self._plain or self._state is FINISHED:
                    return False
                self._result, self._exception, self._state = result, exception, FINISHED
                return True
        except BaseException:
            give_back(_changing)
            raise
