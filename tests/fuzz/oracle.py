"""Judges answers by the rules that hold for every request."""

import asyncio
import json
import re
from typing import Any, NamedTuple

import msgspec

from tests.docs.pages import ROOT

_ERRORS = (ROOT / "docs/api/errors.md").read_text()
_ROW = re.compile(r"^\| (\d{3}) \| (.*) \|$", re.MULTILINE)
PROBLEMS = {
    int(row[1]): set(re.findall(r"`([a-z]+(?:-[a-z]+)+|internal|unavailable)`", row[2]))
    for row in _ROW.finditer(_ERRORS)
}
"""The types of problems that docs/api/errors.md names, by status."""


class Violation(Exception):
    pass


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    document: Any

    @property
    def slug(self) -> str:
        """Returns the type of a problem."""
        document = self.document if isinstance(self.document, dict) else {}
        return str(document.get("type", "")).removeprefix("urn:hourwheel:")

    @property
    def last(self) -> bool:
        return self.headers.get("connection") == "close"


async def read_answer(reader: asyncio.StreamReader, method: str) -> Answer | None:
    """Reads and judges the next answer, and returns it; None if the connection ended before it."""
    while True:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Violation(f"half an answer: {error.partial[:100]!r}") from None
            return None
        except ConnectionError:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        if first != "HTTP/1.1 100 Continue":
            break
    found = re.fullmatch(r"HTTP/1\.1 (\d{3}) [A-Za-z ]+", first)
    if found is None:
        raise Violation(f"no status line: {first[:100]!r}")
    headers = {name.lower(): text for name, text in (line.split(": ", 1) for line in lines)}
    status = int(found[1])
    size = 0 if method == "HEAD" or status == 204 else int(headers["content-length"])
    body = await reader.readexactly(size)
    return judge(Answer(status, headers, _document(headers.get("content-type", ""), body)), method)


def _document(kind: str, body: bytes) -> Any:
    if not body:
        return None
    return (
        msgspec.msgpack.decode(body) if kind == "application/msgpack" else json.loads(body) if "json" in kind else None
    )


def judge(answer: Answer, method: str) -> Answer:
    """Returns the answer. Raises ``Violation`` for an answer that docs/api/errors.md does not describe."""
    status, document = answer.status, answer.document
    if status in {200, 204}:
        return answer
    if status == 500 or status not in PROBLEMS:
        raise Violation(f"{status}: {document}")
    if answer.headers.get("content-type") != "application/problem+json":
        raise Violation(f"{status} is no problem document: {answer.headers}")
    if method == "HEAD":
        return answer
    if answer.slug not in PROBLEMS[status] or document.get("status") != status or not document.get("detail"):
        raise Violation(f"{status} with a problem that docs/api/errors.md does not name: {document}")
    return answer
