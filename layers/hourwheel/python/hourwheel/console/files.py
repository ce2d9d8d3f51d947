"""Holds the files of the console in a table by name, which is read once: the path of a request never reaches the
disk."""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "static"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Lets the pages load their own files and call their own origin only. An element that a message smuggled into a page
could neither run a script nor send anything."""

SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Content(NamedTuple):
    """Holds a file in the forms in which it is sent: ``plain`` and ``compressed``. ``tag`` is its ETag."""

    kind: str
    plain: bytes
    compressed: bytes
    tag: str


class FileAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


@cache
def contents() -> Mapping[str, Content]:
    """Returns the files by their path below ``/console/``. The empty path is the page itself."""
    files = {
        path.relative_to(_FOLDER).as_posix(): _content(path)
        for path in sorted(_FOLDER.rglob("*"))
        if path.suffix in _TYPES
    }
    return {"": files["index.html"], **files}


def file_answer(name: str, *, if_none_match: str, accept_encoding: str) -> FileAnswer | None:
    """Returns the answer to a request for a file, or None for a name that is not in the table."""
    content = contents().get(name)
    if content is None:
        return None
    # A browser asks at each load whether a file has changed: pages of two versions never mix.
    headers = {**SECURITY_HEADERS, "cache-control": "no-cache", "etag": content.tag, "vary": "accept-encoding"}
    if content.tag in (tag.strip().removeprefix("W/") for tag in if_none_match.split(",")):
        return FileAnswer(304, headers, b"")
    headers["content-type"] = content.kind
    if "gzip" in accept_encoding:
        headers["content-encoding"] = "gzip"
        return FileAnswer(200, headers, content.compressed)
    return FileAnswer(200, headers, content.plain)


def _content(path: Path) -> Content:
    plain = path.read_bytes()
    return Content(
        _TYPES[path.suffix], plain, gzip.compress(plain, mtime=0), f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
    )
