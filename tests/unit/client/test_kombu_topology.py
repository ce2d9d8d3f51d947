"""The queues of Kombu work with servers of the previous version, and with tokens that may not manage groups."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from hourwheel.celery.options import TransportOptions
from hourwheel.celery.state import BrokerState, QueueKind
from hourwheel.celery.topology import Topology
from hourwheel.client import Api, BadRequest
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_creation import refuse_field, told


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


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (400, "the query parameter 'forget' is unknown"),
        (401, "this token may not do that"),
        (403, "this token may not do that"),
    ],
)
def test_a_consumer_that_cannot_be_forgotten_expires(
    server: FakeServer, topology: Topology, status: int, detail: str
) -> None:
    topology.state.ensured.add(("consumer", "reply.exchange", "replies"))
    refuse_leave(server, status, detail)
    topology.delete("replies")
    assert len(server.calls("leave")) == 1
    assert not topology.state.ensured


def test_another_refusal_is_told(server: FakeServer, topology: Topology) -> None:
    refuse_leave(server, 400, "the name is not valid")
    with pytest.raises(BadRequest, match="not valid"):
        topology.delete("replies")


def test_a_purge_leaves_the_field_out_once_a_server_refused_it(server: FakeServer, topology: Topology) -> None:
    fill(server, "a", "b")
    refuse_field(server, "pull")
    assert topology.purge("orders") == 2
    assert told(server, "pull") == [False, None, None]
