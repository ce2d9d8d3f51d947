"""Parses the head of a request as strictly as RFC 9112 allows. A head that two readers could understand differently is
refused."""

import re
from typing import Any, NamedTuple

Headers = list[tuple[bytes, bytes]]

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_NAME = re.compile(_TOKEN)
_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([0-9])")
_ABSOLUTE = re.compile(rb"https?://([^/?]+)(.*)", re.IGNORECASE)
_AUTHORITY = re.compile(rb"(?:\[[0-9A-Za-z:.]+\]|[0-9A-Za-z._~!$&'()*+,;=%-]*)(?::[0-9]{0,5})?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_LENGTH_LINE = b"\r\ncontent-length: "
# Control characters other than a tab, and a CR or LF that is not half of a CRLF.
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n")

SHORT_BYTES = 512
"""The longest head that a server keeps (``ConnectionRegistry.parse_short_head``). The heads of clients have about 200
bytes. A parsed head of many tiny headers takes up to 25 times its length, so longer ones would take much memory."""


class Malformed(Exception):
    """Says that a request is not HTTP/1.1. The end of its body is unknown, so no later byte of the connection can be
    understood."""


class Head(NamedTuple):
    """The head of a request. ``length`` is None when the body is chunked. Names of headers are in lower case; a
    content-length that ``without_length`` has taken out is not among them. In ``plans`` the application keeps how it
    answers requests with this head and a body of any length, by whether they came over TLS."""

    method: str
    path: str
    query: str
    headers: Headers
    length: int | None
    keep_alive: bool
    expects_continue: bool
    plans: dict[Any, Any]


def parse_head(data: bytes) -> Head:
    """Parses a request line and headers, without the empty line that ends them. Raises ``Malformed``."""
    if _FORBIDDEN.search(data):
        raise Malformed("it holds a control character, or a line that does not end in CRLF")
    first, *lines = data.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise Malformed("its first line is not a method, a target and HTTP/1.1")
    modern = line[3] != b"0"
    headers = [_header(text) for text in lines]
    _check_host(headers, modern=modern)
    authority, target = _split_target(line[1], line[2])
    if authority is not None:
        # RFC 9112, 3.2.2: the authority of the target counts, and Host is ignored.
        headers = [header for header in headers if header[0] != b"host"] + [(b"host", authority)]
    path, _, query = target.partition(b"?")
    return Head(
        line[1].decode("ascii"),
        path.decode("ascii"),
        query.decode("ascii"),
        headers,
        _body_length(headers, modern=modern),
        modern and not _says(headers, b"connection", b"close"),
        modern and _says(headers, b"expect", b"100-continue"),
        {},
    )


def without_length(data: bytes) -> tuple[bytes, int | None]:
    """Takes the length of the body out of a head. Returns the head as it was, and None, if anything else in it may say
    where the body ends: ``parse_head`` decides about such a head as a whole."""
    lower = data.lower()  # a regular expression that ignores case would take ten times as long
    start = lower.find(_LENGTH_LINE)
    if start < 0 or lower.count(b"content-length") > 1 or b"transfer-encoding" in lower:
        return data, None
    begin = start + len(_LENGTH_LINE)
    end = data.find(b"\r\n", begin)
    length = data[begin:] if end < 0 else data[begin:end]
    rest = data[:start] + data[begin + len(length) :]
    return (rest, int(length)) if _LENGTH.fullmatch(length) else (data, None)


def check_trailer(line: bytes) -> None:
    """Raises ``Malformed`` unless the line could be a header."""
    if _FORBIDDEN.search(line):
        raise Malformed("a trailer holds a control character")
    _header(line)


def _header(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    # Also refuses folded lines, and blanks before the colon: proxies disagree about both (RFC 9112, 5.1 and 5.2).
    if not colon or not _NAME.fullmatch(name):
        raise Malformed("a header is not a name, a colon and a value")
    return name.lower(), value.strip(b" \t")


def _check_host(headers: Headers, *, modern: bool) -> None:
    hosts = _values(headers, b"host")
    if len(hosts) > 1 or (modern and not hosts):
        raise Malformed(f"it has {len(hosts)} Host headers instead of one")
    if hosts and not _AUTHORITY.fullmatch(hosts[0]):
        raise Malformed("its Host is neither a name nor an address")


def _split_target(method: bytes, target: bytes) -> tuple[bytes | None, bytes]:
    """Returns the authority, if the target is an absolute URI, and the path with the query."""
    if b"#" in target:
        raise Malformed("its target has a fragment")
    if target.startswith(b"/") or (target == b"*" and method == b"OPTIONS"):
        return None, target
    match = _ABSOLUTE.fullmatch(target)
    if match is None or not _AUTHORITY.fullmatch(match[1]):
        raise Malformed("its target is neither a path nor an http URI")
    rest = match[2]
    return match[1], rest if rest.startswith(b"/") else b"/" + rest


def _body_length(headers: Headers, *, modern: bool) -> int | None:
    """Returns the length of the body in bytes; None when the body is chunked."""
    lengths = _values(headers, b"content-length")
    codings = [value.lower() for value in _values(headers, b"transfer-encoding")]
    if codings:
        # Two readers could end such a body at different bytes, and read its rest as a request (RFC 9112, 6.1 and 11.2).
        if lengths or codings != [b"chunked"] or not modern:
            raise Malformed("its body has a length and an encoding, or an encoding other than chunked")
        return None
    if not lengths:
        return 0
    # Refuses equal lengths and signs too, which some readers accept.
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise Malformed("its Content-Length is not one number")
    return int(lengths[0])


def _says(headers: Headers, name: bytes, token: bytes) -> bool:
    """Returns whether the headers of this name, which are lists separated by commas, contain the token."""
    lists = (value.lower().split(b",") for value in _values(headers, name))
    return any(token in [part.strip(b" \t") for part in parts] for parts in lists)


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for header, value in headers if header == name]
