"""What uvicorn says by itself, in the words of the API, and the bounds that it does not set for the head of a request.

They hold before anybody has shown a token: a head is the request line and the headers.
"""

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
        self._head_bytes = 0
        self._refused = False
        # uvicorn limits the pause between requests only: a client that never completes one would hold a socket for ever.
        self._head_timer = self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        head = self.scope if self._head_bytes else None
        super().data_received(data)
        # Of a line without an end the parser tells nothing.
        if head is not None and head is self.scope and self._head_bytes and not self._refused:
            self._unfinished_bytes += len(data)
            if self._unfinished_bytes > HEAD_BYTES:
                self._refuse(431, "headers-too-large", _TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 1
        self._unfinished_bytes = 0
        if self._head_timer.cancelled():
            self._head_timer = self._start_timer()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + len(": \r\n"))

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._head_timer.cancel()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > HEAD_BYTES:
            self._refuse(431, "headers-too-large", _TOO_LARGE)
        else:
            self._refuse(400, "http-invalid", "the request line or a header is not HTTP/1.1")

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > HEAD_BYTES:
            raise ValueError(_TOO_LARGE)  # which ends the parsing: see ``send_400_response``

    def _start_timer(self) -> asyncio.TimerHandle:
        return self.loop.call_later(HEAD_SECONDS, self._late)

    def _late(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._head_timer = self._start_timer()  # it waits for its answer, which may take longer
        elif self._head_bytes:
            self._refuse(408, "request-timeout", f"the headers did not arrive within {HEAD_SECONDS:g} s: send it again")
        else:
            self.transport.close()

    def _refuse(self, status: int, slug: str, detail: str) -> None:
        """Answers and closes. What still comes is dropped for a moment: closing at once would reset the connection, and
        the client might lose the answer."""
        self._refused = True
        self._head_timer.cancel()
        response = problem(status, slug, detail, instance="")
        body = response["body"].encode()
        head = f"content-type: {response['headers']['content-type']}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.write_eof()
        self.loop.call_later(_FAREWELL_SECONDS, self.transport.close)


_TOO_LARGE = f"the request line and the headers hold at most {HEAD_BYTES} bytes"
