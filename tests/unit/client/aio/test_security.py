"""TLS, trust and signatures are those of the other client."""

import asyncio
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hourwheel.client import AsyncApi, AsyncProducer, Message, ServerFault, Unauthorized
from tests.certificates import Certificate
from tests.unit.client.aio.conftest import Run
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_signing import REGION, assert_signed, configuration, keys

__all__ = ["configuration", "keys"]


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path / "certificate")


@pytest.fixture
def secure(certificate: Certificate) -> Iterator[FakeServer]:
    fake = FakeServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    fake._http.socket = context.wrap_socket(fake._http.socket, server_side=True)
    fake.url = fake.url.replace("http:", "https:")
    with fake.running():
        yield fake


def test_messages_travel_encrypted_to_a_server_that_is_trusted(
    secure: FakeServer, certificate: Certificate, run: Run[Any]
) -> None:
    async def main() -> None:
        async with AsyncProducer(secure.url, subject="orders", token="secret", ca_file=certificate.chain) as sends:
            await asyncio.gather(*(sends.send("x" * 100_000) for _ in range(3)))

    run(main())
    assert len(secure.bodies("orders")) == 3
    assert secure.connections == 1


def test_a_server_that_is_not_trusted_gets_no_request(secure: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(secure.url) as api:
            with pytest.raises(ServerFault, match="is not trusted"):
                await api.list_subjects()

    run(main())
    assert secure.requests == []


@pytest.mark.usefixtures("keys")
def test_requests_are_signed_for_aws(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(server.url, sign="aws", region=REGION) as api:
            await api.produce("orders", [Message("päid", key="k")])
            await api.list_subjects(after="a b+c")

    run(main())
    for request in server.requests:
        assert assert_signed(request).key_id == "AKIDEXAMPLE"
    assert len(server.requests) == 2


def test_missing_credentials_are_told(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(server.url, sign="aws", region=REGION) as api:
            with pytest.raises(Unauthorized, match="no AWS credentials were found"):
                await api.list_subjects()

    run(main())


def test_a_program_of_threads_does_not_load_asyncio() -> None:
    code = "import sys, hourwheel.client as c; print(LOADED); c.AsyncApi; print(LOADED)"
    told = subprocess.run(
        [sys.executable, "-c", code.replace("LOADED", "'asyncio' in sys.modules")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["False", "True"]
