"""Subjects and groups are deleted while they are in use: all other requests are answered."""

import threading

import pytest

from tests.integration.process import Server, send

USERS = 8


class Busy:
    """Users that repeat a request until told to stop, and count what they were answered."""

    def __init__(self, server: Server, path: str, body: dict[str, object]) -> None:
        self.answers: list[int] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(server, path, body)) for _ in range(USERS)]

    def _repeat(self, server: Server, path: str, body: dict[str, object]) -> None:
        with server.connect() as connection:
            while not self._over.is_set():
                self.answers.append(connection.call("POST", path, body).status)

    def __enter__(self) -> "Busy":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize(
    ("path", "body", "deleted"),
    [
        ("/v1/subjects/s/messages", {"messages": [{"body": "x"}] * 100}, "/v1/subjects/s"),
        ("/v1/subjects/s/groups/g/pull", {"consumer": "c", "max_messages": 10}, "/v1/subjects/s/groups/g"),
        ("/v1/subjects/s/groups/g/pull", {"consumer": "c", "wait_seconds": 0.05}, "/v1/subjects/s"),
    ],
)
def test_what_is_in_use_is_deleted_and_made_again(
    server: Server, path: str, body: dict[str, object], deleted: str
) -> None:
    with server.connect() as operator, Busy(server, path, body) as busy:
        for _ in range(20):
            send(operator, "a", "b", subject="s")
            assert operator.call("DELETE", deleted).status in {204, 404, 503}
            assert operator.call("GET", "/v1/health").status == 200
    assert len(busy.answers) > USERS
    assert set(busy.answers) <= {200, 503}
