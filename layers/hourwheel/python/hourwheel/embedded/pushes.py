"""Pushes in threads of this process: one for each group that has something to push, which ends when nothing is left."""

import threading
from collections import defaultdict
from time import monotonic

from hourwheel.api.boundary import Boundary
from hourwheel.api.problems import is_fault
from hourwheel.cell import Cell
from hourwheel.push.decisions import Ended
from hourwheel.push.pusher import Pusher
from hourwheel.push.state import pushed_groups
from hourwheel.push.waking import drop_leftover, start_overdue

_STOP_SECONDS = 10.0
_LINGER_SECONDS = 1.0
"""A pusher waits so long for more: in a steady flow it is not started for each message."""


class EmbeddedPushes:
    """``Pushes`` of one process. Nothing is pushed before ``begin``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, set[str]] = {}
        self._running: dict[tuple[str, str], threading.Thread] = {}
        self._again: set[tuple[str, str]] = set()
        self._looked_at: set[tuple[str, str]] = set()
        self._stopping = threading.Event()
        self._cell: Cell | None = None
        self._boundary: Boundary | None = None
        self._owner = ""

    def begin(self, cell: Cell, owner: str, boundary: Boundary) -> None:
        self._cell, self._owner, self._boundary = cell, owner, boundary

    def heard(self, subject: str, group: str | None = None) -> None:
        """Something was stored for the subject, or for one group of it."""
        for name in self._groups.get(subject, ()):
            if group in (None, name):
                self.start(subject, name)

    def heard_all(self) -> None:
        """Something was stored, by another process."""
        for subject in list(self._groups):
            self.heard(subject)

    def start(self, subject: str, group: str) -> None:
        key = subject, group
        with self._lock:
            if self._cell is None or self._stopping.is_set():
                return
            if key in self._running:
                self._again.add(key)
                return
            thread = threading.Thread(target=self._serve, args=key, name=f"push {subject}/{group}", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # No more threads: who stored something has done so all the same. The next ``look`` tries again.
                self._looked_at.discard(key)
                return
            self._running[key] = thread

    def look(self) -> None:
        """Takes note of the groups that have a target, and starts what is overdue: once a second."""
        assert self._cell is not None
        groups: dict[str, set[str]] = defaultdict(set)
        for pushed in pushed_groups(self._cell.context):
            groups[pushed.subject].add(pushed.group)
        self._groups = dict(groups)
        found = {(subject, group) for subject, names in groups.items() for group in names}
        with self._lock:
            fresh, self._looked_at = found - self._looked_at, found
        # What was stored for them before, by a process that was killed at once perhaps, woke nobody.
        for subject, group in fresh:
            self.start(subject, group)
        if groups:
            start_overdue(self._cell.context, self._cell.registry)

    def look_anew(self) -> None:
        """Has the next ``look`` start all groups: another server may have stopped pushing for them."""
        with self._lock:
            self._looked_at = set()

    def stop(self) -> None:
        """Lets deliveries that are under way finish, those that do within ten seconds."""
        with self._lock:
            self._stopping.set()
        until = monotonic() + _STOP_SECONDS
        for thread in list(self._running.values()):
            thread.join(max(0.0, until - monotonic()))

    @property
    def running(self) -> int:
        """For how many groups somebody pushes now."""
        with self._lock:
            return len(self._running)

    def _serve(self, subject: str, group: str) -> None:
        key = subject, group
        while True:
            with self._lock:
                self._again.discard(key)
            self._push(subject, group)
            with self._lock:
                if key not in self._again or self._stopping.is_set():
                    del self._running[key]
                    return

    def _push(self, subject: str, group: str) -> None:
        assert self._cell is not None
        assert self._boundary is not None
        try:
            ended = Pusher(
                self._cell,
                self._cell.targets,
                subject,
                group,
                self._owner,
                wait_seconds=_LINGER_SECONDS,
                stopping=self._stopping.is_set,
            ).run()
            if ended is Ended.NO_TARGET:
                drop_leftover(self._cell.context, self._cell.registry, subject, group)
        except Exception as error:
            if is_fault(error):
                self._boundary.report(error, f"pushing {subject}/{group} failed")
            ended = Ended.BUSY
            with self._lock:
                self._looked_at.discard((subject, group))  # the next ``look`` starts it again
        if ended in (Ended.BUSY, Ended.PAUSED):
            # Whoever has it looks once more; a pause is ended by ``look``.
            with self._lock:
                self._again.discard((subject, group))
