from collections.abc import Iterator

import pytest

from hourwheel.client import Api
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillClock, StillIds
from tests.unit.client.runs import RUNS, Start


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer().running() as fake:
        yield fake


@pytest.fixture
def api(server: FakeServer) -> Iterator[Api]:
    with Api(server.url, ids=StillIds(), clock=StillClock()) as api:
        yield api


@pytest.fixture(params=RUNS)
def start(request: pytest.FixtureRequest) -> Start:
    """Returns what runs a consumer: in threads, or in tasks."""
    return RUNS[request.param]
