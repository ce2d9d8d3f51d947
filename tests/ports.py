"""Ports for servers that take none from the system themselves."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from random import SystemRandom

_CHOICE = range(20_000, 32_000)
"""Below the ports that systems give to connections, and to servers that ask for any port: until the server of a test
listens, nothing else takes one of these."""


def free_ports(number: int) -> list[int]:
    """Returns different ports of the loopback interface on which nothing listens."""
    free = _free()
    return [next(free) for _ in range(number)]


def _free() -> Iterator[int]:
    for port in SystemRandom().sample(_CHOICE, len(_CHOICE)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            yield port
