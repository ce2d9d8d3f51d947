"""Keeps the connections of a server, and bounds their number and the time that each may take."""

import asyncio
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv6Address
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

    def give_way(self) -> bool:
        """Ends a connection on which nothing is worked on. Returns whether it did."""


class ConnectionRegistry:
    """``probes``: the paths that are answered on connections beyond the cap too."""

    def __init__(self, bounds: Bounds, cap: int, probes: Collection[str] = ()) -> None:
        self.bounds = bounds
        self.cap = cap
        self.probes = probes
        self.open: dict[Watched, str] = {}
        """The network of each connection."""
        self.strangers: dict[Watched, None] = {}
        """Open connections that have shown no valid token: first those that have been idle longest."""
        self.farewells: dict[Watched, None] = {}
        """Connections beyond the cap, which get a refusal: first the oldest."""
        self._networks: Counter[str] = Counter()
        self.held_bytes = 0
        """The bytes of unsent answers, bodies, and requests sent ahead that the connections hold."""
        self.busy = 0
        """Requests that are being answered, including those whose client has left."""
        self.parse_short_head = lru_cache(_KEPT_HEADS)(self._parse_short_head)
        """Parses a head of at most ``SHORT_BYTES``, and remembers it, because clients send the same head with each of
        their requests. Each server remembers its own heads, as the application records in a head that its token was
        checked."""
        self._parse = lru_cache(_KEPT_WITHOUT_LENGTH)(parse_head)
        self.stopping = False
        """Whether the server stops: then each answer is the last one of its connection."""

    def enter(self, connection: Watched, address: str) -> bool:
        """Counts a new connection, and returns whether it is within the cap. At the cap, the stranger that has been
        idle longest gives way."""
        network = _network(address)
        most = self.bounds.connections_per_address
        if most and self._networks[network] >= most:
            return False
        if len(self.open) >= self.cap and not any(stranger.give_way() for stranger in list(self.strangers)):
            return False
        self.open[connection] = network
        self.strangers[connection] = None
        self._networks[network] += 1
        return True

    def enter_beyond(self, connection: Watched) -> None:
        """Counts a connection beyond the cap. The oldest one gives way if there are too many."""
        self.farewells[connection] = None
        if len(self.farewells) > self.bounds.farewells:
            next(iter(self.farewells)).give_way()

    def exit(self, connection: Watched) -> None:
        """Forgets a connection. It may be called twice."""
        self.farewells.pop(connection, None)
        self.strangers.pop(connection, None)
        network = self.open.pop(connection, None)
        if network is not None:
            self._networks[network] -= 1
            if not self._networks[network]:
                del self._networks[network]

    def trust(self, connection: Watched) -> None:
        """Notes that a request of the connection had a valid token."""
        self.strangers.pop(connection, None)

    def rest(self, connection: Watched) -> None:
        """Notes that a request of the connection was answered, and that the connection is idle from now on."""
        if connection in self.strangers:
            del self.strangers[connection]
            self.strangers[connection] = None

    @property
    def is_full(self) -> bool:
        """Whether the connections hold as many bytes as they may."""
        return self.held_bytes >= self.bounds.held_bytes

    def takes(self, answer_bytes: int) -> bool:
        """Returns whether the connections may hold one more answer."""
        return self.held_bytes + answer_bytes <= self.bounds.held_bytes

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


@lru_cache(maxsize=1_024)
def _network(address: str) -> str:
    """Returns the address, or the network of an IPv6 address."""
    if ":" not in address:
        return address
    parsed = IPv6Address(address.partition("%")[0])
    return str(parsed.ipv4_mapped or (int(parsed) >> 64))
