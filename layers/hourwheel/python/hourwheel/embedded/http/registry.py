"""Keeps the connections of a server, and bounds their number and the time that each may take."""

import asyncio
from functools import lru_cache
from typing import Protocol

from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.heads import Head, parse_head, without_length

# Clients of a thousand subjects send a few thousand heads that differ in more than the length of the body. These take
# 6 MB; heads that a client makes to take memory, 45 MB.
_KEPT_HEADS = 1_024
_KEPT_WITHOUT_LENGTH = 3_072


class Watched(Protocol):
    def check_time(self, now: float) -> None: ...
    def finish(self) -> None: ...
    def abort(self) -> None: ...


class ConnectionRegistry:
    def __init__(self, bounds: Bounds, cap: int) -> None:
        self.bounds = bounds
        self.cap = cap
        self.open: set[Watched] = set()
        self.farewells: set[Watched] = set()
        """Connections beyond the cap, which get a refusal."""
        self.busy = 0
        """Requests that are being answered, including those whose client has left."""
        self.parse_short_head = lru_cache(_KEPT_HEADS)(self._parse_short_head)
        """Parses a head of at most ``SHORT_BYTES``, and remembers it, because clients send the same head with each of
        their requests. Each server remembers its own heads, as the application records in a head that its token was
        checked."""
        self._parse = lru_cache(_KEPT_WITHOUT_LENGTH)(parse_head)
        self.stopping = False
        """Whether the server stops: then each answer is the last one of its connection."""

    async def watch(self) -> None:
        """Ends connections that take too long, until the task is cancelled. One timer serves all connections: setting a
        timer for each request would cost more than reading the request."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.bounds.tick_seconds)
            self._check_time(loop.time())

    def _check_time(self, now: float) -> None:
        # A loop within ``watch`` would keep its last connection until the next check.
        for connection in [*self.open, *self.farewells]:
            connection.check_time(now)

    def _parse_short_head(self, data: bytes) -> Head:
        """Parses a head, which shares its headers and plans with those that differ only in the length of the body: with
        a thousand subjects and bodies of any length, hardly any head comes twice."""
        rest, length = without_length(data)
        head = self._parse(rest)
        return head if length is None else head._replace(length=length)

    async def drained(self, seconds: float) -> bool:
        """Waits for the connections and the work to end. Returns whether they ended in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (self.open or self.busy) and loop.time() < deadline:
            await asyncio.sleep(0.01)
        return not (self.open or self.busy)

    def finish(self) -> None:
        """Closes each connection, after the answer to the request that is under way."""
        for connection in list(self.open):
            connection.finish()

    def abort(self) -> None:
        for connection in list(self.open):
            connection.abort()
