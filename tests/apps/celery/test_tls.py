"""Kombu on a server with TLS and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kombu import Connection

from hourwheel.client import ServerFault
from tests.certificates import Certificate
from tests.integration.process import Server

SECONDS = 20.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("certificates") / "mine")


@pytest.fixture(scope="module")
def secure(certificate: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data: Path = tmp_path_factory.mktemp("data")
    server = Server(data, tokens=["s3cret"], tls_cert=certificate.chain, tls_key=certificate.key)
    yield f"hourwheel+https://:s3cret@127.0.0.1:{server.port}"
    server.stop()


def test_messages_go_over_tls_where_the_authority_is_named(secure: str, certificate: Certificate) -> None:
    with (
        Connection(secure, transport_options={"ca_file": str(certificate.chain)}) as connection,
        closing(connection.SimpleQueue("tasks")) as queue,
    ):
        queue.put({"hello": "world"})
        message = queue.get(timeout=SECONDS)
        message.ack()
        assert message.payload == {"hello": "world"}


def test_a_server_of_an_unknown_authority_is_refused(secure: str) -> None:
    with Connection(secure) as connection, pytest.raises(ServerFault, match="ca_file"):
        connection.connect()
