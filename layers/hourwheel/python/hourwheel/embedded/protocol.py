"""What uvicorn says by itself, in the words of the API."""

import asyncio
from typing import cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hourwheel.api.problems import problem

_FIRST_SECONDS = 30


class Protocol(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        # uvicorn limits the pause between requests only: a client that never sends one would hold a socket for ever.
        self.timeout_keep_alive_task = self.loop.call_later(_FIRST_SECONDS, self.timeout_keep_alive_handler)

    def send_400_response(self, msg: str) -> None:
        response = problem(400, "http-invalid", "the request line or a header is not HTTP/1.1", instance="")
        body = response["body"].encode()
        head = f"content-type: {response['headers']['content-type']}\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(STATUS_LINE[400] + head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()
