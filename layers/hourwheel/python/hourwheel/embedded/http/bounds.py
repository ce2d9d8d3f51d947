"""Bounds the bytes and the seconds that a connection may take, and the number of connections."""

import resource
from dataclasses import dataclass

_RESERVED_DESCRIPTORS = 256
"""Descriptors that connections leave for the database, large batches, threads that push and archive, and refused
connections that get an answer."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    head_bytes: int = 64 * 1024
    """The largest request line and headers together."""

    header_count: int = 100

    empty_bytes: int = 1_024
    """The most bytes of empty lines before a request, which are dropped."""

    extra_bytes: int = 16 * 1024
    """The most bytes of a request that are no content: extensions of chunks and trailers, which are dropped, and the
    framing of chunks that are shorter than their framing."""

    head_seconds: float = 10.0
    """The time from the first byte of a request to the end of its headers; for the first request, from the start of the
    connection."""

    request_seconds: float = 30.0
    """The time from the first byte of a request to the end of its body; for the first request, from the start of the
    connection."""

    idle_seconds: float = 75.0
    """The time between two requests. It is longer than the time for which proxies keep an idle connection (60 s is
    common). So the proxy closes the connection, and never sends a request into one that is about to end."""

    answer_seconds: float = 60.0
    """The time within which a client has to read 64 KB of an answer."""

    farewell_seconds: float = 1.0
    """The time for which a refused connection stays open. Closing it at once would reset the connection, and lose the
    answer."""

    farewells: int = 64
    """The most connections beyond the cap that wait for their refusal to be read; further ones are closed without an
    answer."""

    held_bytes: int = 256 * 1024 * 1024
    """The most bytes that all connections hold: of answers that are not sent, of bodies, and of requests sent
    ahead."""

    connections_per_address: int = 0
    """The most connections of one address; 0: any number. IPv6 addresses of one network (/64) count as one, because a
    machine has them all."""

    tick_seconds: float = 0.5
    """The time between two checks of the bounds in seconds."""


def connection_cap(limit: int) -> int:
    """Returns the number of connections for which the process has descriptors, at most ``limit``. Before, raises the
    soft limit of descriptors as far as ``limit`` requires and the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limit + _RESERVED_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return limit
    return min(limit, max(soft - _RESERVED_DESCRIPTORS, soft // 4))  # with few descriptors, a quarter is for clients
