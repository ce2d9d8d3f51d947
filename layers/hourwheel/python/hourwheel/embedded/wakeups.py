"""Wakes pulls that wait in this process."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from hourwheel.embedded.greenlets import GreenletRunner, Resume
from hourwheel.model.log_names import shared_name

_COUNTS = 4_096
"""Bounds the memory: subjects share this many counts of announcements. An announcement for another subject may end a
wait early, which is harmless."""


class Caller:
    """The client of a pull. Once the client has ``left``, no messages can be handed to it. ``refused``: the wait ended
    because the server holds as many bytes as it may."""

    def __init__(self) -> None:
        self.left = self.refused = False
        self.waiter: Waiter | None = None

    def takes_messages(self, *, full: bool) -> bool:
        """Ends the wait, and returns whether messages can be handed to the client. ``full``: the server holds as many
        bytes as it may."""
        self.waiter = None
        self.refused = self.refused or full
        return not (self.left or full)


class Waiter:
    """One wait of a pull. ``signal`` stays locked until the wait ends, so that a thread can wait for it."""

    def __init__(self) -> None:
        self.signal = threading.Lock()
        self.signal.acquire()
        self.announced = False
        self.resume: Resume | None = None


class EmbeddedWakeups:
    """Implements ``Wakeups`` for greenlets and threads of one process.

    An announcement wakes in each group the pull that has waited longest, and in a broadcast group one pull of each
    consumer. A pull that takes as many messages as it may announces anew (see ``Puller.pull``), so that further pulls
    wake while messages are left.
    """

    def __init__(self, *, max_waiting: int, greenlets: GreenletRunner | None = None) -> None:
        self._max_waiting = max_waiting
        self._greenlets = greenlets
        self._lock = threading.Lock()
        self._counts = [0] * _COUNTS
        self._all = 0
        self._waiting: dict[str, dict[str, deque[Waiter]]] = {}
        self._count = 0
        self._closed = False
        self._early: list[str] = []
        self._waking_early = ""
        if greenlets is not None:
            greenlets.before_commit = self._wake_early
        self._caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
        self._listen: Callable[[str, str | None], object] = lambda subject, group: None
        self.is_full: Callable[[], bool] = lambda: False
        """Whether a pull that wakes may take no messages, because the server could not hold its answer."""

    def listen(self, hear: Callable[[str, str | None], object]) -> None:
        """Has ``hear`` called with every announcement, for a listener that is no pull."""
        self._listen = hear

    @contextmanager
    def serving(self, caller: Caller) -> Iterator[None]:
        """Assigns the waits of this greenlet or thread within the block to the caller."""
        token = self._caller.set(caller)
        try:
            yield
        finally:
            self._caller.reset(token)

    def leave(self, caller: Caller) -> None:
        """Ends the wait of a caller that has left, and refuses its further waits."""
        with self._lock:
            caller.left = True
            if caller.waiter is not None:
                _wake(caller.waiter)

    def announce(self, subject: str, group: str | None = None) -> None:
        self._listen(subject, None if group is None else shared_name(group))
        with self._lock:
            self._counts[hash(subject) % _COUNTS] += 1
            groups = self._waiting.get(subject)
            if groups is None:
                return
            for name in list(groups):
                if group is None or group in (name, shared_name(name)):
                    self._wake_one(subject, name)

    def announce_early(self, subject: str) -> None:
        if subject in self._waiting and self._greenlets is not None and self._greenlets.on_loop:
            self._early.append(subject)

    def is_early(self, subject: str) -> bool:
        return self._waking_early == subject

    def _wake_early(self) -> None:
        """Wakes a waiting pull of each group of the subjects whose messages the running transaction stores. Each of
        these pulls begins a claim, which joins the transaction, and has paused when this returns. Its answer leaves
        before that of the send: the message comes 0.12 ms sooner, and the producer, which only waits to know, hears
        0.28 ms later."""
        if not self._early:
            return
        subjects, self._early = dict.fromkeys(self._early), []
        for subject in subjects:
            with self._lock:
                paused = [self._next_paused(queue) for queue in self._waiting.get(subject, {}).values()]
            self._waking_early = subject
            try:
                for resume in filter(None, paused):
                    resume.now()
            finally:
                self._waking_early = ""

    @staticmethod
    def _next_paused(queue: "deque[Waiter]") -> Resume | None:
        """Removes the first waiter if it is a greenlet that has paused, and returns its ``Resume``; None otherwise."""
        if not queue or queue[0].resume is None or not queue[0].signal.locked():
            return None
        waiter = queue.popleft()
        waiter.announced = True
        waiter.signal.release()
        return waiter.resume

    def announce_all(self) -> None:
        """Wakes one waiting pull of every group, because messages may have come to any subject. Counts for every
        subject, so that a pull that has looked and does not wait yet looks again."""
        with self._lock:
            self._all += 1
            subjects = list(self._waiting)
        for subject in subjects:
            self.announce(subject)

    def announcements(self, subject: str) -> int:
        with self._lock:
            return self._announced(subject)

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        caller = self._caller.get()
        waiter = Waiter()
        with self._lock:
            if self._refuses(caller):
                return False
            # An announcement came after the caller looked, so a message may be there already.
            if self._announced(subject) != since:
                return True
            if self._count >= self._max_waiting:
                return False
            self._enter(subject, group, waiter)
            if caller is not None:
                caller.waiter = waiter
        self._block(waiter, seconds)
        with self._lock:
            self._forget(subject, group, waiter)
            takes = caller is None or caller.takes_messages(full=self.is_full())
            if not takes and waiter.announced:
                # This caller takes no messages, so the announcement goes to the next waiter.
                self._wake_one(subject, group)
            return takes and not self._closed

    @property
    def waiting(self) -> int:
        """The number of current waits."""
        with self._lock:
            return self._count

    def close(self) -> None:
        """Ends every wait, and refuses further ones."""
        with self._lock:
            self._closed = True
            for groups in self._waiting.values():
                for queue in groups.values():
                    for waiter in queue:
                        _wake(waiter)

    def _refuses(self, caller: Caller | None) -> bool:
        """Returns whether the caller may not wait any more."""
        return self._closed or (caller is not None and caller.left)

    def _announced(self, subject: str) -> int:
        return self._counts[hash(subject) % _COUNTS] + self._all  # both only grow, so their sum changes with each

    def _block(self, waiter: Waiter, seconds: float) -> None:
        if self._greenlets is None or not self._greenlets.inside:
            waiter.signal.acquire(timeout=seconds)
            return

        def begin(resume: Resume) -> None:
            with self._lock:
                waiter.resume = resume
                # The announcement came before ``waiter.resume`` was set, and could not resume the greenlet.
                if not waiter.signal.locked():
                    resume()

        self._greenlets.pause(begin, seconds)

    def _enter(self, subject: str, group: str, waiter: Waiter) -> None:
        self._waiting.setdefault(subject, {}).setdefault(group, deque()).append(waiter)
        self._count += 1

    def _wake_one(self, subject: str, group: str) -> None:
        queue = self._waiting.get(subject, {}).get(group)
        while queue:
            waiter = queue.popleft()
            if waiter.signal.locked():
                waiter.announced = True
                _wake(waiter)
                return

    def _forget(self, subject: str, group: str, waiter: Waiter) -> None:
        self._count -= 1
        groups = self._waiting.get(subject, {})
        queue = groups.get(group)
        if queue is None:
            return
        if not waiter.announced and waiter in queue:
            queue.remove(waiter)
        if not queue:
            del groups[group]
            if not groups:
                del self._waiting[subject]


def _wake(waiter: Waiter) -> None:
    if waiter.signal.locked():
        waiter.signal.release()
        if waiter.resume is not None:
            waiter.resume()
