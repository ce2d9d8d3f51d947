"""Answers, and their bytes."""

from http import HTTPStatus
from typing import NamedTuple

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}


class Answer(NamedTuple):
    """A header ``connection`` closes the connection, whatever it says."""

    status: int
    headers: dict[str, str]
    body: bytes


def encode_answer(answer: Answer, *, close: bool, body: bool = True) -> bytes:
    """The answer in one piece: one call into the kernel. Without ``body`` its length is told, as HEAD wants it."""
    lines = [_STATUS_LINES[answer.status]]
    lines += [f"{name}: {text}\r\n" for name, text in answer.headers.items() if name != "connection"]
    if answer.status != HTTPStatus.NO_CONTENT:
        lines.append(f"content-length: {len(answer.body)}\r\n")
    if close:
        lines.append("connection: close\r\n")
    lines.append("\r\n")
    head = "".join(lines).encode("latin-1")
    if head.count(b"\n") != len(lines):
        raise ValueError("a header of an answer holds a line end")
    return head + answer.body if body else head
