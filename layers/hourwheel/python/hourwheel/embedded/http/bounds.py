"""What a connection may take: bytes, seconds, and how many of them there may be."""

import resource
from dataclasses import dataclass

_RESERVED_DESCRIPTORS = 256
"""For the database, segments, threads that push and archive, and connections that are told to come back later."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    head_bytes: int = 64 * 1024
    """The request line and the headers."""

    header_count: int = 100

    empty_bytes: int = 1_024
    """Empty lines before a request, which are dropped."""

    extra_bytes: int = 16 * 1024
    """Extensions of chunks and trailers of one request, which are dropped, and what framing exceeds tiny chunks by."""

    head_seconds: float = 10.0
    """From the first byte of a request to the end of its headers; for the first request from the connection's start."""

    request_seconds: float = 30.0
    """From the first byte of a request to the end of its body; for the first request from the connection's start."""

    idle_seconds: float = 75.0
    """Between two requests. Longer than proxies keep an idle connection (60 s is common), so that the proxy closes it
    and never sends a request into a connection that is about to end."""

    answer_seconds: float = 60.0
    """For each 64 KB of an answer that the client leaves unread."""

    farewell_seconds: float = 1.0
    """How long a connection that was refused stays: closed at once, it would be reset and the answer lost."""

    farewells: int = 64
    """Connections beyond the cap that are told so at the same time; others are closed without a word."""

    tick_seconds: float = 0.5
    """How often the bounds in seconds are checked."""


def connection_cap(limit: int) -> int:
    """The number of connections that the process has descriptors for, at most ``wanted``. Raises the soft limit of
    descriptors as far as that takes and the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limit + _RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return limit
    return min(limit, max(soft - _RESERVED_DESCRIPTORS, soft // 4))
