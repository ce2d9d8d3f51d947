"""Encodes answers."""

from http import HTTPStatus
from typing import NamedTuple

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}

_KIND = "x-content-type-options"
_KIND_LINE = f"{_KIND}: nosniff\r\n"
"""Keeps browsers from taking an answer, which may quote what others sent, for a page or a script."""

_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
"""Statuses of answers that end with their head. They have no content-length, which would be that of an answer with a
body (RFC 9110, 8.6)."""


class Answer(NamedTuple):
    """An answer to a request. A header ``connection`` of any value closes the connection after the answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def encode_answer(answer: Answer, *, close: bool, body: bool = True) -> bytes:
    """Returns the answer as one piece, so that one call into the kernel sends it. Without ``body``, returns the head
    alone, with the length of the body: this answers HEAD. Raises ``ValueError`` for a header with a line end."""
    lines = [_STATUS_LINES[answer.status]]
    lines += [f"{name}: {text}\r\n" for name, text in answer.headers.items() if name != "connection"]
    if _KIND not in answer.headers:
        lines.append(_KIND_LINE)
    if answer.status not in _WITHOUT_BODY:
        lines.append(f"content-length: {len(answer.body)}\r\n")
    if close:
        lines.append("connection: close\r\n")
    lines.append("\r\n")
    head = "".join(lines).encode("latin-1")
    if head.count(b"\n") != len(lines):
        raise ValueError("a header of an answer holds a line end")
    return head + answer.body if body else head
