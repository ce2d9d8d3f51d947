"""What uvicorn says by itself, in the words of the API, and the bounds that it does not set for the head of a request
(its first line and its headers), which comes before anybody has shown a token."""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hourwheel.api.problems import problem

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 10.0
_FAREWELL_SECONDS = 1.0


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._in_head = False
        self._unfinished_bytes = 0
        self._too_large = False
        self._refused = False
        # uvicorn limits the pause between requests only: a client that never sends one would hold a socket for ever.
        self._head_timer: asyncio.TimerHandle | None = self.loop.call_later(HEAD_SECONDS, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        begun = self.scope if self._in_head else None
        super().data_received(data)
        if not self._in_head or self._refused:
            return
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)
        # The parser gathers a line without saying so until it has an end.
        self._unfinished_bytes = self._unfinished_bytes + len(data) if self.scope is begun else 0
        if self._unfinished_bytes > HEAD_BYTES:
            self._refuse_size()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        if len(self.url) + sum(len(name) + len(text) + len(": \r\n") for name, text in self.headers) > HEAD_BYTES:
            self._too_large = True
            raise ValueError  # ends the parsing, and comes back as ``send_400_response``
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._too_large:
            self._refuse_size()
        else:
            self._refuse(400, "http-invalid", "the request line or a header is not HTTP/1.1")

    def _head_is_late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            # It waits for the answer to the request before, and we may read nothing meanwhile.
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_is_late)
        elif self._in_head:
            self._refuse(408, "request-timeout", f"the headers did not arrive within {HEAD_SECONDS:g} s: send it again")
        else:
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_size(self) -> None:
        self._refuse(431, "headers-too-large", f"the request line and the headers hold at most {HEAD_BYTES} bytes")

    def _refuse(self, status: int, slug: str, detail: str) -> None:
        """Answers and closes. What still comes is dropped for a moment: closing at once would reset the connection, and
        the client might lose the answer."""
        self._refused = True
        self._stop_head_timer()
        response = problem(status, slug, detail, instance="")
        body = response["body"].encode()
        head = f"content-type: {response['headers']['content-type']}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + b"connection: close\r\n\r\n" + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_FAREWELL_SECONDS, self.transport.close)
