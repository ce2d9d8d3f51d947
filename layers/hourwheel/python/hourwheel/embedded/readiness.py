"""Whether the server can store something now.

Another process that is stopped amid a transaction keeps all others from writing: reads go on, and every write is 503.
So ``GET /v1/ready`` finds it out by writing, and a watch tells the log who may be the cause.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.api.events import Response, ok
from hourwheel.api.problems import problem
from hourwheel.embedded.roster import Roster
from hourwheel.errors import HourwheelError, StorageFull

_PATIENCE_SECONDS = 2.0
_KEPT_SECONDS = 1.0
"""However many ask, and they need no token, that is a write a second at the most."""

_BLOCKED = "the disk does not answer, or another process keeps the database locked, stopped amid a transaction perhaps"

_logger = logging.getLogger("hourwheel")


class Readiness:
    """Answers ``GET /v1/ready``. For one event loop. ``probe`` writes, and raises what writing raises."""

    def __init__(self, probe: Callable[[], None]) -> None:
        self._probe = probe
        self._thread = ThreadPoolExecutor(1, "readiness")
        self._attempt: asyncio.Future[str] | None = None
        self._known = ""
        self._until = 0.0

    async def answer(self, request_id: str) -> Response:
        """200, or 503 with the reason, after two seconds at the most."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._until:
            self._known = await self._look(loop)
            self._until = loop.time() + _KEPT_SECONDS
        if not self._known:
            return ok({"status": "ready"})
        return problem(503, "not-ready", self._known, instance=request_id, headers={"retry-after": "1"})

    def close(self) -> None:
        self._thread.shutdown()

    async def _look(self, loop: asyncio.AbstractEventLoop) -> str:
        """Why nothing can be stored; empty if something can. One attempt serves all who ask while it is under way."""
        if self._attempt is None or self._attempt.done():
            self._attempt = loop.run_in_executor(self._thread, self._try)
        attempt = self._attempt  # another request may begin the next one before this goes on
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
    """Tells the log when another process has kept this one from writing for long, and when it no longer does."""

    def __init__(self, store: SqliteStore, roster: Roster) -> None:
        self._store = store
        self._roster = roster
        self._told = False

    def look(self) -> None:
        """Raises what writing raises."""
        seconds = self._store.blocked_seconds
        if seconds < _PATIENCE_SECONDS:
            if self._told and not seconds:
                self._told = False
                _logger.warning("the database can be written to again")
            return
        if not self._told:
            self._told = True
            others = ", ".join(map(str, self._roster.processes())) or "none"
            _logger.warning("nothing could be stored for %.0f s: %s; other servers: %s", seconds, _BLOCKED, others)
        # Else it would take the next request to find out.
        self._store.probe()
