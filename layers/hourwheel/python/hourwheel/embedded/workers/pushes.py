"""Pushes in threads of this process: one for each group with messages to push, which ends when none is left."""

import threading
from collections import defaultdict
from time import monotonic

from hourwheel.api.boundary import Boundary
from hourwheel.api.problems import is_fault
from hourwheel.deployment.deployment import Deployment
from hourwheel.push.decisions import PusherEnd
from hourwheel.push.pusher import Pusher
from hourwheel.push.state import pushed_groups
from hourwheel.push.waking import drop_leftover, start_overdue

_STOP_SECONDS = 10.0  # a supervisor kills a process that takes much longer to stop
_LINGER_SECONDS = 1.0
"""A pusher waits this long for more messages before it ends. Without that, each message of a steady flow would start
another pusher."""


class EmbeddedPushes:
    """Implements ``Pushes`` with threads of one process. Starts no pusher before ``begin``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[str, set[str]] = {}
        self._running: dict[tuple[str, str], threading.Thread] = {}
        self._again: set[tuple[str, str]] = set()
        self._looked_at: set[tuple[str, str]] = set()
        self._stopping = threading.Event()
        self._cell: Deployment | None = None
        self._boundary: Boundary | None = None
        self._owner = ""

    def begin(self, deployment: Deployment, owner: str, boundary: Boundary) -> None:
        self._cell, self._owner, self._boundary = deployment, owner, boundary

    def heard(self, subject: str, group: str | None = None) -> None:
        """Starts the pushers of a subject, or of one group of it, because messages were stored there."""
        for name in self._groups.get(subject, ()):
            if group in (None, name):
                self.start(subject, name)

    def heard_all(self) -> None:
        """Starts all pushers, because another process has stored messages."""
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
                # The process has too many threads. Storing succeeded nevertheless, and the next ``look`` retries.
                self._looked_at.discard(key)
                return
            self._running[key] = thread

    def look(self) -> None:
        """Finds the groups with a target, and starts the pushers that are overdue. Called once a second."""
        assert self._cell is not None
        groups: dict[str, set[str]] = defaultdict(set)
        for pushed in pushed_groups(self._cell.context):
            groups[pushed.subject].add(pushed.group)
        self._groups = dict(groups)
        keys = {(subject, group) for subject, names in groups.items() for group in names}
        with self._lock:
            unseen, self._looked_at = keys - self._looked_at, keys
        # A process that was killed may have stored messages for these groups without starting a pusher.
        for subject, group in unseen:
            self.start(subject, group)
        if groups:
            start_overdue(self._cell.context, self._cell.registry)

    def look_anew(self) -> None:
        """Makes the next ``look`` start all pushers, because another server may have stopped pushing."""
        with self._lock:
            self._looked_at = set()

    def stop(self) -> None:
        """Stops the pushers, and waits up to ten seconds for deliveries under way."""
        with self._lock:
            self._stopping.set()
        until = monotonic() + _STOP_SECONDS
        for thread in list(self._running.values()):
            thread.join(max(0.0, until - monotonic()))

    @property
    def running(self) -> int:
        """The number of groups with a running pusher."""
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
            if ended is PusherEnd.NO_TARGET:
                drop_leftover(self._cell.context, self._cell.registry, subject, group)
        except Exception as error:
            if is_fault(error):
                self._boundary.report(error, f"pushing {subject}/{group} failed")
            ended = PusherEnd.BUSY
            with self._lock:
                self._looked_at.discard((subject, group))  # the next ``look`` starts the pusher again
        if ended in (PusherEnd.BUSY, PusherEnd.PAUSED):
            # No further round: the pusher that holds the lease looks for messages before it ends, and after a pause
            # ``look`` starts the pusher.
            with self._lock:
                self._again.discard((subject, group))
