"""Provides a server for the examples, which each of them finds as new."""

from collections.abc import Iterator

import pytest

from hourwheel.client import Api, Message
from tests.integration.conftest import server, start
from tests.integration.process import three_cells

__all__ = ["server", "start"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with three_cells(tmp_path_factory.mktemp("examples")) as url:
        yield url


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    """Yields an API on a server with a subject ``orders`` that holds the message ``paid``, a group ``billing``, and
    the cells ``fast`` and ``old``."""
    with Api(url) as api:
        for cell in ("fast", "old"):
            api.put_cell(cell, kinds=["real-time", "delay"])
            api.put_cell(cell, state="normal")
        api.put_group("orders", "billing")
        api.produce("orders", [Message("paid", key="customer-42")])
        yield api
        for subject in api.list_subjects().subjects:
            api.delete_subject(subject.subject)
