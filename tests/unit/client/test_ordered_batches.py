"""A batch handler of an ordered group gets messages of different keys at once."""

from typing import Any

from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import Start
from tests.unit.client.test_idle_handlers import with_messages


def test_a_key_goes_on_after_a_batch_whose_first_message_has_no_key(server: FakeServer, start: Start) -> None:
    with_messages(server, [{"body": "alone"}, {"body": "first", "key": "k"}, {"body": "second", "key": "k"}])
    batches: list[Any] = []

    def handle(messages: Any) -> None:
        with server.broker.changed:
            batches.append([message.body for message in messages])
            server.broker.changed.notify_all()

    with start(server, handle, lists=True):
        server.wait_until(lambda _: len(batches) == 2)
    assert batches == [["alone", "first"], ["second"]]
