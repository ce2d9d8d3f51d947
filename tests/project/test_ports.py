"""A port that a test gives to a server is taken by nothing else before the server listens."""

import socket
from pathlib import Path

import pytest

from tests import ports
from tests.ports import free_ports

SYSTEMS = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_the_system_gives_no_such_port_to_anybody_else() -> None:
    first = int(SYSTEMS.read_text().split()[0]) if SYSTEMS.exists() else 32_768
    assert max(free_ports(50)) < first


def test_the_ports_differ_and_can_be_listened_on() -> None:
    found = free_ports(2)
    assert len(set(found)) == 2
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_on_which_something_listens_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, other = free_ports(2)
    monkeypatch.setattr(ports, "_CHOICE", [taken, other])
    with socket.create_server(("127.0.0.1", taken)):
        assert free_ports(1) == [other]
