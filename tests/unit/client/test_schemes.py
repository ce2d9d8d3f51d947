"""URLs with the wrong scheme: the error says which one to try."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hourwheel.client import Api, ServerUnavailable
from tests.unit.client.fake import FakeServer

# The answer of a TLS server to plain HTTP: an alert (handshake_failure).
ALERT = b"\x15\x03\x01\x00\x02\x02\x28"


@contextmanager
def answering(data: bytes) -> Iterator[int]:
    """Serves these bytes as the answer to any request, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (ALERT, "; it serves HTTPS: the URL begins with https://"),
        (b"", "; if it serves HTTPS, the URL begins with https://"),
        (b"nonsense", "; if it serves HTTPS, the URL begins with https://"),
    ],
    ids=["alert", "closed", "nonsense"],
)
def test_http_to_a_server_of_https_or_to_one_that_is_stopped(data: bytes, hint: str) -> None:
    with (
        answering(data) as port,
        Api(f"http://127.0.0.1:{port}", retry_seconds=0) as api,
        pytest.raises(ServerUnavailable, match=hint),
    ):
        api.list_subjects()


def test_https_to_a_server_of_http(server: FakeServer) -> None:
    url = server.url.replace("http:", "https:")
    with (
        Api(url, retry_seconds=0) as api,
        pytest.raises(ServerUnavailable, match="it may serve plain HTTP: then the URL begins with http://"),
    ):
        api.list_subjects()


def test_a_server_that_has_answered_before_is_not_suspected(server: FakeServer) -> None:
    with Api(server.url, retry_seconds=0) as api:
        api.list_subjects()
        server.fail("list_subjects", cut=True)
        with pytest.raises(ServerUnavailable) as raised:
            api.list_subjects()
    assert "https" not in str(raised.value)
