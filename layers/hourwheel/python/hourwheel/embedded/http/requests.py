"""Presents a request to the application."""

import asyncio
from collections.abc import Callable

from hourwheel.embedded.http.bodies import Body
from hourwheel.embedded.http.heads import Head, Headers
from hourwheel.model.fields import REQUEST_BYTES


class Disconnected(Exception):
    """Says that the client has left, or that its body was refused: nobody waits for an answer."""


class Request:
    """A request. ``method``, ``path`` and ``query`` are as the client sent them; names of ``headers`` are in lower
    case. ``secure``: the request came over TLS."""

    def __init__(
        self, head: Head, framing: Body, ask_for_body: Callable[[], None], *, client: str, secure: bool
    ) -> None:
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers: Headers = head.headers
        self.client = client
        self.secure = secure
        self.head = head
        self.framing = framing
        self.answered = False
        self.trusted = False
        """Whether the application has found a valid token, or needs none."""
        self.unpacked_bytes = 0
        """The size of the unpacked body of a compressed request that is being answered."""
        self.hold_unpacked: Callable[[], None] = lambda: None
        """Counts ``unpacked_bytes`` among the bytes that the connections hold. Raises ``MemoryFull``."""
        self.asked_for_body = False
        self._ask_for_body = ask_for_body
        self._parts: list[bytes] = []
        self._size = 0
        self._most = REQUEST_BYTES
        self._disconnected = False
        self._waiter: asyncio.Future[None] | None = None
        self._when_left: Callable[[], object] | None = None

    async def body(self, most: int = REQUEST_BYTES) -> bytes:
        """Returns the body. Of a body larger than ``most`` bytes it returns only the beginning, which is larger than
        that too, and drops the rest. Raises ``Disconnected`` if the client leaves before the body has come."""
        self._most = most
        if self._size > most:
            self._parts = [self.complete_body[: most + 1]]
            self._size = len(self._parts[0])
        if not self.framing.complete and not self._disconnected:
            self._ask_for_body()
        while not self.framing.complete and self._size <= most and not self._disconnected:
            await self._wait()
        if self._disconnected and not self.framing.complete:
            raise Disconnected
        return self.complete_body

    @property
    def size(self) -> int:
        """The number of bytes of the body that are in memory."""
        return self._size

    @property
    def complete_body(self) -> bytes:
        """The body of a request that has arrived as a whole."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)

    @property
    def is_last(self) -> bool:
        """Whether no request may follow on the connection, as far as the client decides."""
        # After an early answer, a client that asked whether to send its body may send it or leave it out: nobody could
        # tell whether the next bytes are a body or a request.
        unsure = not self.framing.complete and self.head.expects_continue and not self.asked_for_body
        return unsure or not self.head.keep_alive

    def when_left(self, call: Callable[[], object]) -> None:
        """Calls ``call`` when the client leaves or ends its side; at once if it has done so."""
        self._when_left = call
        if self._disconnected:
            call()

    def take(self, part: bytes) -> None:
        """Adds a part of the body. Drops it if the request was answered, or the body is larger than allowed."""
        if part and not self.answered and self._size <= self._most:
            part = part[: self._most + 1 - self._size]
            self._parts.append(part)
            self._size += len(part)
        self._wake()

    def drop_body(self) -> None:
        """Drops the body, and what will come of it."""
        self._most = -1
        self._parts, self._size = [], 0

    def hold(self, unpacked_bytes: int) -> None:
        """Notes the size of the unpacked body. Raises ``MemoryFull`` if the connections cannot hold it. Called on the
        loop's thread."""
        self.unpacked_bytes = unpacked_bytes
        self.hold_unpacked()

    def finish(self) -> None:
        """Notes that the request is answered. Its body is needed no more."""
        self.answered = True
        self.unpacked_bytes = 0
        self.drop_body()

    def leave(self) -> None:
        self._disconnected = True
        if self._when_left is not None:
            self._when_left()
        self._wake()

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
