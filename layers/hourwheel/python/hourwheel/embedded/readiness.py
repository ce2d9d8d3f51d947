"""Checks whether the server can write.

A process that is stopped (SIGSTOP) within a transaction keeps all others from writing: then reads succeed, and every
write is answered 503. ``GET /v1/ready`` therefore writes, and a watch logs the processes that may be the cause.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.api.events import Response, ok
from hourwheel.api.problems import problem
from hourwheel.embedded.directories.reserve import Reserves
from hourwheel.embedded.directories.roster import Roster
from hourwheel.errors import HourwheelError, StorageFull

_PATIENCE_SECONDS = 2.0  # a write takes milliseconds: one that takes this long is blocked
_KEPT_SECONDS = 1.0  # probes need no token, so they must not cause more than one write a second

_BLOCKED = "the disk does not answer, or another process keeps the database locked, stopped amid a transaction perhaps"

_logger = logging.getLogger("hourwheel")


class Readiness:
    """Answers ``GET /v1/ready``, on one event loop. ``probe`` writes to the store, and raises the errors of the
    write. A server of which only the ``reserves`` are left is ready, because consumers have to drain it."""

    def __init__(self, probe: Callable[[], None], reserves: Reserves) -> None:
        self._probe = probe
        self._reserves = reserves
        self._thread = ThreadPoolExecutor(1, "readiness")
        self._attempt: asyncio.Future[str] | None = None
        self._reason = ""
        self._until = 0.0

    async def answer(self, request_id: str, *, names: bool = False) -> Response:
        """Returns 200, or 503 with the reason, within two seconds. With ``names`` it names the volumes that have little
        space."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until:
            self._reason = await self._look(loop)
            self._until = loop.time() + _KEPT_SECONDS
        if not self._reason:
            return ok(self._ready(names=names))
        return problem(503, "not-ready", self._reason, instance=request_id, headers={"retry-after": "1"})

    def _ready(self, *, names: bool) -> dict[str, object]:
        low = self._reserves.low()
        if not low:
            return {"status": "ready"}
        return {"status": "ready", "space": "low", **({"volumes": low} if names else {})}

    def close(self) -> None:
        self._thread.shutdown()

    async def _look(self, loop: asyncio.AbstractEventLoop) -> str:
        """Returns the reason why writing fails; "" if it does not. Requests share the attempt that is under way."""
        if self._attempt is None or self._attempt.done():
            self._attempt = loop.run_in_executor(self._thread, self._try)
        attempt = self._attempt  # another request may begin the next attempt before this one resumes
        done, _ = await asyncio.wait({attempt}, timeout=_PATIENCE_SECONDS)
        return attempt.result() if done else f"nothing could be stored for {_PATIENCE_SECONDS:g} s: {_BLOCKED}"

    def _try(self) -> str:
        try:
            self._probe()
        except StorageFull:
            return "nothing can be stored: no room is left on the server's volume"
        except HourwheelError:
            return f"nothing can be stored: {_BLOCKED}"
        return ""


class WriteWatch:
    """Logs that another process has kept this one from writing for two seconds, and later that writing works again."""

    def __init__(self, store: SqliteStore, roster: Roster) -> None:
        self._store = store
        self._roster = roster
        self._logged = False

    def look(self) -> None:
        """Checks once, and logs a change. Raises the errors of a write."""
        seconds = self._store.blocked_seconds
        if seconds < _PATIENCE_SECONDS:
            if self._logged and not seconds:
                self._logged = False
                _logger.warning("the database can be written to again")
            return
        if not self._logged:
            self._logged = True
            others = ", ".join(map(str, self._roster.processes())) or "none"
            _logger.warning("nothing could be stored for %.0f s: %s; other servers: %s", seconds, _BLOCKED, others)
        # Without this write, only the next request that writes would find that writing works again.
        self._store.probe()
