"""No thread or task of a consumer ends without a word: an unexpected error ends the run, and the run raises it."""

from __future__ import annotations

from typing import Any

import pytest

from hourwheel.client.consuming.lease_tracker import LeaseTracker
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import LONG_SECONDS, Start
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_creation import Worker


class Unexpected(Exception):
    pass


@pytest.fixture(params=["complete", "open", "due"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails before a pull, after one, or before a settlement."""

    def fail(*_: object, **__: object) -> Any:
        raise Unexpected

    monkeypatch.setattr(LeaseTracker, request.param, fail)


@pytest.mark.usefixtures("broken")
def test_an_unexpected_error_ends_the_run(server: FakeServer, start: Start) -> None:
    fill(server, "paid")
    with start(server, lambda message: None) as run:
        run.join()
    assert isinstance(run.error, Unexpected)


def take_all(worker: Worker) -> None:
    while worker.ready.wait(LONG_SECONDS):
        worker.ready.clear()
        while worker.subscription.take():  # as a framework does: one event may stand for a message and an error
            pass


@pytest.mark.usefixtures("broken")
def test_a_framework_hears_of_an_unexpected_error(server: FakeServer) -> None:
    fill(server, "paid")
    worker = Worker(server)
    worker.subscription.start()
    with pytest.raises(Unexpected):
        take_all(worker)
    worker.subscription.close()
