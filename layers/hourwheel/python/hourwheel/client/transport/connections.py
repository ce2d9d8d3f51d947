"""Keeps HTTP/1.1 connections to one server alive, over plain sockets.

``http.client`` would take 72 us of CPU for a small exchange, of which this module takes 12. It parses the head of an
answer as that of a mail, and sends the head and the body of a request one after the other, so that the server wakes
twice.
"""

import http.client
import os
import select
import socket
import threading

from hourwheel.client.transport.answers import AnswerParser
from hourwheel.client.transport.endpoint import Endpoint, Reply, closed
from hourwheel.locks import gives_back

MOST_IDLE = 64  # each idle connection takes a descriptor, here and at the server

_READ_BYTES = 64 << 10  # small answers come in one piece
_MOST_READ_BYTES = 1 << 20  # each read takes a buffer of its size, whatever comes


class _ClientConnection:
    """Carries one exchange at a time. Raises ``OSError`` and ``http.client.HTTPException``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.sock: socket.socket | None = None
        self.reusable = False
        self._timeout_seconds = 0.0

    def connect(self, timeout_seconds: float) -> None:
        endpoint = self.endpoint
        self._timeout_seconds = timeout_seconds
        sock = socket.create_connection((endpoint.host, endpoint.connect_port), timeout_seconds)
        try:
            # Else the kernel holds back the end of a request until the server has acknowledged the rest.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if endpoint.security is not None:
                sock = endpoint.security.wrap_socket(sock, server_hostname=endpoint.host)
        except BaseException:
            sock.close()
            raise
        self.sock = sock

    def exchange(self, data: bytes, timeout_seconds: float) -> Reply:
        """Sends a request and returns the answer; then ``reusable`` says whether the connection may carry another."""
        sock = self.sock
        assert sock is not None
        if timeout_seconds != self._timeout_seconds:
            self._timeout_seconds = timeout_seconds
            sock.settimeout(timeout_seconds)
        sock.sendall(data)
        parser = AnswerParser()
        complete = False
        while not complete:
            piece = sock.recv(min(max(_READ_BYTES, parser.missing_bytes), _MOST_READ_BYTES))
            complete = parser.feed(piece) if piece else parser.end()
        self.reusable = parser.reusable
        assert parser.reply is not None
        return parser.reply

    def close(self) -> None:
        if self.sock is not None:
            self.sock.close()

    def cut(self) -> None:
        """Ends a read in which another thread waits; closing the socket would not end it."""
        try:
            if self.sock is not None:
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)  # the shutdown of TLS would wait for the read
        except OSError:
            pass  # the connection is closed already


class Connections:
    """Exchanges requests and answers with one server. Thread-safe.

    Each exchange has a connection to itself. Idle connections stay open for later exchanges.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_seconds: float) -> None:
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._idle: list[_ClientConnection] = []
        self._busy: set[_ClientConnection] = set()

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply:
        """Sends one request, once, and returns the whole answer. ``extra_seconds`` lengthens the time-out, for pulls.

        Raises ``ServerUnavailable`` if no whole answer comes in time, ``ServerFault`` for a certificate that is not
        trusted, ``Closed`` after ``close``, and ``ValueError`` for a header that holds a line end.
        """
        data = self._endpoint.encoded_request(method, target, body, headers)
        connection = self._take()
        sent = False
        try:
            if connection.sock is None:
                connection.connect(self._timeout_seconds)
                if self._closed:  # ``close`` found no socket to cut
                    raise ConnectionAbortedError
            sent = True
            reply = connection.exchange(data, self._timeout_seconds + extra_seconds)
        except (OSError, http.client.HTTPException) as error:
            self._discard(connection)
            raise self._endpoint.failed(error, sent=sent, is_closed=self._closed) from error
        except BaseException:
            self._discard(connection)  # half an answer may be left in it
            raise
        self._endpoint.answered = True
        self._give_back(connection)
        return reply

    @gives_back
    def close(self) -> None:
        """Cuts the exchanges under way (they raise ``Closed``) and refuses new ones."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            for connection in self._busy:
                connection.cut()
        for connection in idle:
            connection.close()

    @gives_back
    def _take(self) -> _ClientConnection:
        if self._process != os.getpid():
            self._forget()  # after a fork the sockets are the parent's, and the lock may be held by one of its threads
        while True:
            with self._lock:
                if self._closed:
                    raise closed()
                connection = self._idle.pop() if self._idle else _ClientConnection(self._endpoint)
                self._busy.add(connection)
            if connection.sock is None or not readable(connection.sock.fileno()):
                return connection
            self._discard(connection)  # an idle connection is readable only once the server has closed it

    @gives_back
    def _give_back(self, connection: _ClientConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if connection.reusable and not self._closed and len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    @gives_back
    def _discard(self, connection: _ClientConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
        connection.close()


def readable(descriptor: int) -> bool:
    """Returns whether bytes, or the end of the connection, can be read from a socket now."""
    if hasattr(select, "poll"):  # select refuses descriptors from 1,024 on; Windows has no poll
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([descriptor], [], [], 0)[0])
