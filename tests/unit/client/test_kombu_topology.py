"""The queues of Kombu work with servers of the previous version, and with tokens that may not manage groups."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from hourwheel.apps.celery.options import TransportOptions
from hourwheel.apps.celery.state import BrokerState, QueueKind
from hourwheel.apps.celery.topology import Topology
from hourwheel.client import Api, BadRequest
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_creation import told


@pytest.fixture
def topology(server: FakeServer) -> Iterator[Topology]:
    """Knows a queue ``replies``, which belongs to this process, beside those that it has not declared."""
    state = BrokerState()
    state.exchanges["reply"] = {"type": "direct", "durable": False, "table": []}
    state.queues["replies"] = QueueKind(durable=False)
    state.binding_declare("replies", "reply", "replies", None)
    with Api(server.url) as api:
        yield Topology(api, state, TransportOptions(), "p")


def refuse_leave(server: FakeServer, status: int, detail: str) -> None:
    problem = {"type": "urn:hourwheel:parameter-invalid", "status": status, "detail": detail}
    server.fail("leave", status=status, raw=msgspec.json.encode(problem))


@pytest.mark.parametrize("status", [401, 403])
def test_a_consumer_that_may_not_be_forgotten_expires(server: FakeServer, topology: Topology, status: int) -> None:
    topology.state.ensured.add(("consumer", "reply.exchange", "replies"))
    refuse_leave(server, status, "this token may not do that")
    topology.delete("replies")
    assert len(server.calls("leave")) == 1
    assert not topology.state.ensured


def test_another_refusal_is_told(server: FakeServer, topology: Topology) -> None:
    refuse_leave(server, 400, "the name is not valid")
    with pytest.raises(BadRequest, match="not valid"):
        topology.delete("replies")


def test_a_purge_creates_nothing(server: FakeServer, topology: Topology) -> None:
    fill(server, "a", "b")
    assert topology.purge("orders") == 2
    assert set(told(server, "pull")) == {False}
