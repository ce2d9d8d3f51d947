"""Keeps HTTP/1.1 connections to one server alive, over the transports of asyncio."""

import asyncio
import http.client
from typing import cast

from hourwheel.client.transport.answers import AnswerParser
from hourwheel.client.transport.connections import MOST_IDLE, readable
from hourwheel.client.transport.endpoint import Endpoint, Reply, closed


class _Connection(asyncio.Protocol):
    """Carries one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.reusable = False
        self._parser: AnswerParser | None = None
        self._answered: asyncio.Future[Reply] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # that of uvloop has another type and the same methods

    async def exchange(self, data: bytes) -> Reply:
        if self.transport is None or self.transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        self.reusable = False  # until the whole answer has come
        self._parser = AnswerParser()
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        try:
            return await self._answered
        finally:
            self._parser = self._answered = None

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._parser.reply is not None:
            self.abort()  # bytes without a request, or behind an answer, would be read as the next answer
            return
        try:
            complete = self._parser.feed(data)
        except http.client.HTTPException as error:
            self._fail(error)
            self.abort()
        else:
            if complete:
                self._finish(self._parser)

    def eof_received(self) -> None:
        parser = self._parser
        if parser is None or parser.reply is not None:
            return
        try:
            if parser.end():
                self._finish(parser)
        except http.client.HTTPException as error:
            self._fail(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        self._fail(exc or ConnectionResetError("the connection was closed"))

    def abort(self) -> None:
        self.reusable = False
        if self.transport is not None:
            self.transport.abort()

    @property
    def stale(self) -> bool:
        """Whether the connection can carry no further request, as the server has closed it: also where the loop has not
        noticed that yet."""
        if self.transport is None or not self.reusable or self.transport.is_closing():
            return True
        return readable(self.transport.get_extra_info("socket").fileno())

    def _finish(self, parser: AnswerParser) -> None:
        self.reusable = parser.reusable
        if self._answered is not None and not self._answered.done():
            assert parser.reply is not None
            self._answered.set_result(parser.reply)

    def _fail(self, error: Exception) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


class AsyncConnections:
    """Exchanges requests and answers with one server, for the tasks of one event loop.

    Each exchange has a connection to itself. Idle connections stay open for later exchanges.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._closed = False
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    async def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply:
        """Sends one request, once, and returns the whole answer. ``extra_seconds`` lengthens the time-out, for pulls.

        Raises ``ServerUnavailable`` if no whole answer comes in time, ``ServerFault`` for a certificate that is not
        trusted, ``Closed`` after ``close``, and ``ValueError`` for a header that holds a line end. A cancelled exchange
        ends its connection, so that the server sees that the caller left.
        """
        data = self._endpoint.encoded_request(method, target, body, headers)
        if self._closed:
            raise closed()
        connection = self._idle_connection()
        sent = False
        try:
            async with asyncio.timeout(self._timeout_seconds + extra_seconds):
                if connection.transport is None:
                    await self._connect(connection)
                sent = True
                reply = await connection.exchange(data)
        except (OSError, http.client.HTTPException) as error:
            self._discard(connection)
            raise self._endpoint.failed(error, sent=sent, is_closed=self._closed) from error
        except BaseException:
            self._discard(connection)  # half an answer may be left in it
            raise
        self._endpoint.answered = True
        self._give_back(connection)
        return reply

    async def close(self) -> None:
        """Cuts the exchanges under way (they raise ``Closed``) and refuses new ones."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # a transport that was aborted closes its socket in the next turn of the loop

    def _idle_connection(self) -> _Connection:
        """Returns a connection that is alive, or one that is not connected yet."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.stale:
                break
            connection.abort()
        else:
            connection = _Connection()
        self._busy.add(connection)
        return connection

    async def _connect(self, connection: _Connection) -> None:
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        await loop.create_connection(lambda: connection, endpoint.host, endpoint.connect_port, ssl=endpoint.security)
        if self._closed:  # ``close`` found no socket to cut
            raise ConnectionAbortedError

    def _give_back(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        if connection.reusable and not self._closed and len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.abort()

    def _discard(self, connection: _Connection) -> None:
        self._busy.discard(connection)
        connection.abort()
