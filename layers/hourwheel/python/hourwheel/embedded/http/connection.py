"""Serves one connection: reads a request, has the application answer it, and reads the next one.

``states.py`` draws the states of a connection. Upgrades are ignored, as RFC 9110 allows: a request for one is answered
over HTTP/1.1.
"""

import asyncio
import math
import re
from typing import Any, cast

from hourwheel.embedded.http import refusals
from hourwheel.embedded.http.answer_plans import Answerer, Plan, Respond, no_plan
from hourwheel.embedded.http.answers import Answer, encode_answer
from hourwheel.embedded.http.bodies import ChunkedBody, SizedBody, TooMuch
from hourwheel.embedded.http.heads import SHORT_BYTES, Head, Malformed, parse_head
from hourwheel.embedded.http.registry import ConnectionRegistry
from hourwheel.embedded.http.requests import Disconnected, Request
from hourwheel.embedded.http.states import State
from hourwheel.errors import MemoryFull

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_END = b"\r\n\r\n"
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_NEVER = math.inf
_PROGRESS_BYTES = 64 * 1024  # a client that reads fewer bytes of an answer within ``answer_seconds`` is cut off


class Connection(asyncio.Protocol):
    def __init__(self, registry: ConnectionRegistry, respond: Respond, plan: Plan = no_plan) -> None:
        self._registry = registry
        self._bounds = registry.bounds
        self._head_seconds = min(self._bounds.head_seconds, self._bounds.request_seconds)
        self._respond = respond
        self._plan = plan
        self._answerer: Answerer | None = None
        self._in_answerer = False
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._client = ""
        self._secure = False
        self._state = State.IDLE
        self._data = b""
        self._scanned = 0
        self._empty_bytes = 0
        self._request: Request | None = None
        self._task: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._deadline = _NEVER
        self._unread_deadline = _NEVER
        self._unread_bytes = 0
        self._held_bytes = 0
        self._answer_bytes = 0
        """The size of the last answer."""
        self._beyond = False
        """Whether the connection is beyond the cap: only a probe is answered."""
        self._ended = False
        """Whether the client has ended its side of the connection, and sends nothing more."""
        self._paused = False

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._secure = transport.get_extra_info("sslcontext") is not None
        # ``pause_writing`` is called as soon as one byte waits to be sent. TLS takes a limit of 0 for "always".
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._started_at = self._loop.time()
        peer: Any = transport.get_extra_info("peername")
        self._client = peer[0] if isinstance(peer, tuple) else ""
        self._deadline = self._started_at + self._head_seconds
        if not self._registry.enter(self, self._client):
            self._beyond = True
            # Waits for the head, because a probe is answered; then there is time for the refusal to be read.
            self._deadline = self._started_at + self._bounds.farewell_seconds
            self._registry.enter_beyond(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.exit(self)
        self._state = State.CLOSING
        self._data = b""
        if self._request is not None:
            self._request.leave()
        # The request and the task refer to this connection: all would stay until the garbage collector runs, which is
        # seldom.
        self._request = self._task = self._answerer = None
        self._hold(0)

    def data_received(self, data: bytes) -> None:
        if self._state is State.CLOSING:
            return
        self._data = self._data + data if self._data else data
        self._advance()

    def eof_received(self) -> bool:
        """Keeps the connection open if a complete request has arrived: its client may end its side and still read the
        answer. A pull stops waiting."""
        self._ended = True
        if self._request is not None:
            self._request.leave()
        if not self._goes_on:
            self._transport.close()
            return False
        return not self._secure

    def pause_writing(self) -> None:
        self._unread_bytes = self._transport.get_write_buffer_size()
        self._unread_deadline = self._loop.time() + self._bounds.answer_seconds

    def resume_writing(self) -> None:
        self._unread_deadline = _NEVER
        if self._state is State.IDLE:
            self._advance()
        self._count_held()

    # Called by the server

    def check_time(self, now: float) -> None:
        if self._unread_deadline <= now:
            self._check_reader(now)
            self._count_held()
        if self._deadline > now:
            return
        if self._beyond and self._state in {State.IDLE, State.HEAD}:
            self._refuse(refusals.connections())
        elif self._state is State.IDLE:
            self.close()
        elif self._state is State.HEAD:
            self._refuse(refusals.late("headers", self._head_seconds))
        elif self._state is State.BODY:
            self._refuse(refusals.late("body", self._bounds.request_seconds))
        elif not self._transport.get_write_buffer_size():
            self._transport.abort()

    def finish(self) -> None:
        """Closes the connection, after the answer to the request that is under way."""
        if self._state in {State.IDLE, State.HEAD} or (self._request is not None and self._request.answered):
            self.close()

    def close(self) -> None:
        self._state = State.CLOSING
        self._deadline = _NEVER
        self._transport.close()

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._transport.abort()

    def give_way(self) -> bool:
        request = self._request
        if self._state is State.WORKING or (request is not None and request.trusted):
            return False
        if self._beyond and self._state in {State.IDLE, State.HEAD}:
            self._refuse(refusals.connections())
        if self._beyond and not self._transport.get_write_buffer_size():
            self.close()
        else:
            self.abort()
        self._registry.exit(self)
        return True

    # Reading

    def _advance(self) -> None:
        """Reads as much of the request as has arrived, and begins to answer it or refuses it."""
        try:
            if self._state in {State.IDLE, State.HEAD} and self._unread_deadline == _NEVER:
                self._read_head()
            if self._state is State.BODY:
                self._read_body()
        except Malformed as error:
            self._refuse(refusals.malformed(error))
        except TooMuch:
            self._refuse(refusals.extra_bytes(self._bounds))
        self._regulate()

    def _read_head(self) -> None:
        self._drop_empty_lines()
        if not self._data:
            return
        if self._state is State.IDLE:
            self._state = State.HEAD
            self._started_at = min(self._started_at, self._loop.time())
            if not self._beyond:
                self._deadline = self._started_at + self._head_seconds
            self._scanned = 0
        end = self._data.find(_END, self._scanned)
        if (len(self._data) if end < 0 else end) > self._bounds.head_bytes:
            self._refuse(refusals.large_head(self._bounds))
        elif end < 0:
            self._scanned = max(0, len(self._data) - len(_END))
        elif self._data.count(b"\r\n", 0, end) > self._bounds.header_count:
            self._refuse(refusals.large_head(self._bounds))
        else:
            head = self._data[:end]
            parsed = self._registry.parse_short_head(head) if end <= SHORT_BYTES else parse_head(head)
            self._accept_head(parsed, self._data[end + len(_END) :])

    def _drop_empty_lines(self) -> None:
        """Drops empty lines before a request: some clients send one after a body (RFC 9112, 2.2)."""
        match = _EMPTY_LINES.match(self._data)
        if match is None:
            return
        self._empty_bytes += match.end()
        if self._empty_bytes > self._bounds.empty_bytes:
            raise Malformed("it begins with too many empty lines")
        self._data = self._data[match.end() :]

    def _accept_head(self, head: Head, rest: bytes) -> None:
        framing = ChunkedBody(self._bounds.extra_bytes) if head.length is None else SizedBody(head.length)
        request = self._request = Request(head, framing, self._ask_for_body, client=self._client, secure=self._secure)
        request.hold_unpacked = self._hold_unpacked
        self._state = State.BODY
        self._empty_bytes = 0
        self._deadline = self._started_at + self._bounds.request_seconds
        self._data = rest
        if head.path not in self._registry.probes and self._is_refused():
            return
        self._answerer = self._plan(request)
        if self._answerer is not None:
            request.trusted = True
            self._registry.trust(self)
        if self._answerer is None:
            self._task = self._loop.create_task(self._serve(request))
        elif len(rest) < (head.length or 0):
            self._ask_for_body()

    def _is_refused(self) -> bool:
        """Refuses a request beyond the cap, or while the connections hold as many bytes as they may. Returns whether it
        did."""
        if self._beyond:
            self._refuse(refusals.connections())
        elif self._registry.is_full:
            self._refuse(refusals.held_bytes(self._bounds))
        return self._state is State.CLOSING

    def _read_body(self) -> None:
        request = self._request
        assert request is not None
        part, self._data = request.framing.feed(self._data)
        request.take(part)
        self._count_held()
        if request.framing.complete:
            self._state = State.WORKING
            self._deadline = _NEVER
            if self._ended:
                request.leave()
            if request.answered:
                self._go_on()
            elif self._answerer is not None:
                self._call_answerer(request, self._answerer)
        elif request.size and self._registry.is_full:
            self._refuse(refusals.held_bytes(self._bounds))

    def _ask_for_body(self) -> None:
        request = self._request
        assert request is not None
        if request.head.expects_continue and not request.asked_for_body:
            self._transport.write(_CONTINUE)
        request.asked_for_body = True

    def _regulate(self) -> None:
        """Pauses reading while bytes of further requests wait that are longer than one head, and resumes it after."""
        full = len(self._data) > self._bounds.head_bytes and self._state is not State.CLOSING
        if full != self._paused and not self._transport.is_closing():
            self._paused = full
            (self._transport.pause_reading if full else self._transport.resume_reading)()
        self._count_held()

    def _count_held(self) -> None:
        request = self._request
        body_bytes = 0 if request is None else request.size + request.unpacked_bytes
        # An answer stays in memory as a whole until its last byte is sent.
        answer_bytes = self._answer_bytes if self._transport.get_write_buffer_size() else 0
        self._hold(len(self._data) + body_bytes + answer_bytes)

    def _hold_unpacked(self) -> None:
        self._count_held()
        if self._registry.is_full:
            raise MemoryFull(refusals.too_many_bytes(self._bounds))

    def _hold(self, held_bytes: int) -> None:
        self._registry.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes

    # Answering

    def _call_answerer(self, request: Request, answerer: Answerer) -> None:
        def reply(answer: Answer) -> None:
            self._registry.busy -= 1
            if request is self._request and self._state is not State.CLOSING:
                self._answer(request, answer)

        self._registry.busy += 1
        self._in_answerer = True
        try:
            answerer(request, reply)
        finally:
            self._in_answerer = False

    async def _serve(self, request: Request) -> None:
        self._registry.busy += 1
        try:
            answer = await self._respond(request)
            if request is self._request and self._state is not State.CLOSING:
                self._answer(request, answer)
        except Disconnected:
            if self._state is not State.CLOSING:
                self.close()
        except BaseException:
            self._transport.abort()
            raise
        finally:
            self._registry.busy -= 1

    def _answer(self, request: Request, answer: Answer) -> None:
        request.finish()
        if request.trusted:
            self._registry.trust(self)
        # Only a request without an effect may be refused afterwards. The kernel takes a small answer at once.
        refusable = request.method == "GET" and len(answer.body) > _PROGRESS_BYTES
        if refusable and not self._registry.takes(len(answer.body)):
            answer = refusals.held_bytes(self._bounds)
        last = request.is_last or self._registry.stopping or self._beyond or "connection" in answer.headers
        encoded = encode_answer(answer, close=last, body=request.method != "HEAD")
        self._answer_bytes = len(encoded)
        self._transport.write(encoded)
        if last:
            self._end()
        elif request.framing.complete:
            self._go_on()
        self._count_held()

    def _go_on(self) -> None:
        """Begins the next request, after this one was read and answered."""
        self._request = self._task = None
        self._state = State.IDLE
        self._started_at = _NEVER
        self._deadline = self._loop.time() + self._bounds.idle_seconds
        self._registry.rest(self)
        if self._in_answerer:
            # The answer came within the call of the answerer. Requests that were sent ahead are taken by the loop, as
            # each would be answered within the call for the one before.
            self._loop.call_soon(self._take_next)
        else:
            self._take_next()

    def _take_next(self) -> None:
        if self._data and self._state is State.IDLE:
            self._advance()
        if self._ended and not self._goes_on:
            self.close()

    @property
    def _goes_on(self) -> bool:
        """Whether a request has arrived and has to be answered, though the client has ended its side."""
        return self._state is State.WORKING or (self._state is State.IDLE and bool(self._data))

    # Ending

    def _end(self) -> None:
        """Ends the server's side, and drops later bytes for a moment. Closing at once would reset the connection, and
        the client might lose the answer."""
        request = self._request
        if request is not None and request.framing.complete and not self._data:
            self.close()
            return
        self._state = State.CLOSING
        self._data = b""
        self._deadline = self._loop.time() + self._bounds.farewell_seconds
        if self._ended:
            self.close()
        elif self._transport.can_write_eof() and not self._secure:
            self._transport.write_eof()
        self._regulate()

    def _refuse(self, refusal: Answer) -> None:
        request = self._request
        if request is None or not request.answered:
            self._transport.write(encode_answer(refusal, close=True))
        if request is not None:
            request.finish()
            request.leave()
        self._end()

    def _check_reader(self, now: float) -> None:
        """Ends a connection whose client leaves its answer unread."""
        unread = self._transport.get_write_buffer_size()
        if self._unread_bytes - unread < _PROGRESS_BYTES:
            self._transport.abort()
        else:
            self._unread_bytes = unread
            self._unread_deadline = now + self._bounds.answer_seconds
