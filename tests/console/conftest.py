"""Starts one browser for all tests of the console. Each test gets pages that fail it when something goes wrong in
them."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.console import chromium, scene
from tests.console.pages import Visits
from tests.integration.process import Server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.browser() as started:
        yield started


@pytest.fixture
def visits(browser: Browser) -> Iterator[Visits]:
    """Opens pages. At the end no page may have asked another host, or have had an error that the test does not
    expect."""
    opened = Visits(browser)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Yields an empty server, which the tests of a module share."""
    started = Server(tmp_path_factory.mktemp("server") / "data")
    yield started
    started.kill()
    started.process.close()


@pytest.fixture(scope="module")
def shop(server: Server) -> Server:
    """Returns the server with the queues of a shop."""
    with server.connect() as connection:
        scene.fill(connection)
    return server
