"""A server for the examples, which is as new for each of them."""

from collections.abc import Iterator

import pytest

from hourwheel.client import Api, Message
from tests.integration.conftest import server, start
from tests.integration.process import Server

__all__ = ["server", "start"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("examples")
    server = Server(folder / "data", cells={"fast": folder / "fast", "old": folder / "old"})
    yield f"http://127.0.0.1:{server.port}"
    server.stop()
    for pipe in (server.process.stdout, server.process.stderr):
        assert pipe is not None
        pipe.close()


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    """With a subject ``orders`` that holds the message ``paid``, a group ``billing``, and the cells ``fast`` and
    ``old``."""
    with Api(url) as api:
        for cell in ("fast", "old"):
            api.put_cell(cell, kinds=["real-time", "delay"])
            api.put_cell(cell, state="normal")
        api.put_group("orders", "billing")
        api.produce("orders", [Message("paid", key="customer-42")])
        yield api
        for subject in api.list_subjects().subjects:
            api.delete_subject(subject.subject)
