"""Composes the answers to requests that a connection refuses, without asking the application."""

from hourwheel.api.problems import problem
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.heads import Malformed

_RETRY = {"retry-after": "1"}


def late(part: str, seconds: float) -> Answer:
    return _refusal(408, "request-timeout", f"the {part} did not arrive within {seconds:g} s: send it again")


def malformed(error: Malformed) -> Answer:
    return _refusal(400, "http-invalid", f"the request is not HTTP/1.1: {error}")


def extra_bytes(bounds: Bounds) -> Answer:
    detail = f"extensions, framing of tiny chunks and trailers hold at most {bounds.extra_bytes} bytes"
    return _refusal(431, "headers-too-large", detail)


def large_head(bounds: Bounds) -> Answer:
    detail = f"the request line and the headers hold at most {bounds.head_bytes} bytes, {bounds.header_count} headers"
    return _refusal(431, "headers-too-large", detail)


def connections() -> Answer:
    detail = "as many connections are open as the server takes, in all or of one address: send it again in a moment"
    return _refusal(503, "server-busy", detail, **_RETRY)


def held_bytes(bounds: Bounds) -> Answer:
    return _refusal(503, "server-busy", too_many_bytes(bounds), **_RETRY)


def too_many_bytes(bounds: Bounds) -> str:
    held = bounds.held_bytes
    return f"unsent answers and bodies hold {held} bytes, as many as they may: send the request again in a moment"


def _refusal(status: int, slug: str, detail: str, **headers: str) -> Answer:
    answer = problem(status, slug, detail, instance="", headers=headers)
    return Answer(status, answer["headers"], answer["body"].encode())
