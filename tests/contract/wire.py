"""Puts faults between a client and its service, where the SDK's own retries would see them."""

import io
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError
from botocore.httpsession import URLLib3Session

Fault = Callable[[AWSPreparedRequest], AWSResponse | None]


class Wire:
    """Counts the requests of a client, and spoils the next ones with the faults of ``faults``."""

    def __init__(self, client: Any, service: str = "dynamodb") -> None:
        self.requests = 0
        self.faults: deque[Fault] = deque()
        client.meta.events.register_first(f"before-send.{service}", self._before_send)

    def _before_send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        self.requests += 1
        return self.faults.popleft()(request) if self.faults else None


class _Raw(io.BytesIO):
    """The part of a response that botocore reads from the wire."""

    def stream(self, amt: int = 65536, decode_content: bool | None = None) -> Iterator[bytes]:
        while chunk := self.read(amt):
            yield chunk


def answer(request: AWSPreparedRequest, status: int, body: bytes, **headers: str) -> AWSResponse:
    fields: Any = {"Content-Type": "application/x-amz-json-1.0"} | headers
    return AWSResponse(request.url, status, fields, _Raw(body))


def refusal(code: str, status: int = 400) -> Fault:
    body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "injected"}).encode()
    return lambda request: answer(request, status, body)


def _send(request: AWSPreparedRequest) -> bytes:
    session = URLLib3Session(timeout=60)
    try:
        reply = session.send(request)
        assert reply.status_code < 500
        return bytes(reply.content)
    finally:
        session.close()


def passed(request: AWSPreparedRequest) -> None:
    """Lets the request pass."""


def not_connected(request: AWSPreparedRequest) -> None:
    raise ConnectTimeoutError(endpoint_url=request.url)


def reply_lost(request: AWSPreparedRequest) -> None:
    _send(request)
    raise ReadTimeoutError(endpoint_url=request.url)


def connection_cut(request: AWSPreparedRequest) -> None:
    _send(request)
    raise ConnectionClosedError(endpoint_url=request.url)


def failed_after_effect(request: AWSPreparedRequest) -> AWSResponse:
    _send(request)
    return answer(request, 500, b'{"__type": "InternalServerError"}')


def gateway_page(request: AWSPreparedRequest) -> AWSResponse:
    return answer(request, 503, b"<html>Service Unavailable</html>")


def reply_cut_off(request: AWSPreparedRequest) -> AWSResponse:
    whole = _send(request)
    return answer(request, 200, whole[: len(whole) // 2], **{"x-amz-crc32": str(crc32(whole))})


throttled = refusal("ProvisionedThroughputExceededException")
failed_before_effect = refusal("InternalServerError", 500)
