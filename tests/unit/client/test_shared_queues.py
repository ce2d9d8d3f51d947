"""Queues of Kombu that share the room of a channel take no more of it than they can use."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from hourwheel.apps.celery.shared_room import SharedRoom, SharingSubscription
from hourwheel.client import Api
from hourwheel.client.consuming.delivery import DeliveryOutcome
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import fill
from tests.unit.client.test_creation import Worker
from tests.unit.client.test_local_queue import Busy


class Shared:
    """Two queues, of which the second one had its turn later."""

    def __init__(self, server: FakeServer, room: int) -> None:
        self.room = SharedRoom(lambda: None)
        options = Worker(server).subscription._options
        self.first, self.last = (
            SharingSubscription(
                options,
                queue=queue,
                shared=self.room,
                room=lambda: room,
                limit=lambda: room,
                on_ready=lambda: None,
            )
            for queue in ("first", "last")
        )
        self.last.turn = 1


def test_a_queue_without_room_gives_back_what_the_worker_does_not_take_meanwhile(server: FakeServer) -> None:
    shared = Shared(server, 0)
    first = shared.first
    first._queue = first._local.deliveries = Busy("ab")
    assert cast(list[str], shared.room.settle_excess(first, asked=2, brought=2)) == ["b"]


def test_only_a_queue_that_has_shown_messages_waits_for_room(server: FakeServer) -> None:
    shared = Shared(server, 0)
    assert (shared.room.reserve(shared.last), shared.last.reserved) == (1, 0)
    shared.last.eager = True
    assert shared.room.reserve(shared.last) == 0


@pytest.mark.parametrize(("suspects_wait", "left"), [(False, 0), (True, 1)])
def test_a_queue_that_lets_its_messages_be_handled_first_leaves_its_turn_to_the_others(
    server: FakeServer, suspects_wait: bool, left: int
) -> None:
    fill(server, "a")
    with Api(server.url) as api:
        pulled = msgspec.structs.replace(api.pull("orders", "billing", "host-1"), suspects_wait=suspects_wait)
    shared = Shared(server, 1)
    first, last = shared.first, shared.last
    last.eager = True  # turns are for queues that have shown messages
    assert shared.room.reserve(first) == 1
    first._asked = 1
    first._end_pull([], pulled)
    delivery = first.take()
    assert delivery is not None
    first.turn = 0
    assert shared.room.reserve(last) == left
    first.settle(delivery, DeliveryOutcome.ACK)
    assert first._may_pull()
    assert shared.room.reserve(last) == 0
