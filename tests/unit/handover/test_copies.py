"""Copies carry what their row states of each message, and a row that has expired damages nothing."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Corrupt
from hourwheel.handover.copies import read_messages
from hourwheel.model.messages import NewMessage
from hourwheel.times import rfc3339
from tests.support import Bench, CallByCall

QUEUE = "orders~1/0"


def test_each_delayed_message_of_a_row_says_when_it_was_sent() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    sent_at = rfc3339(bench.clock.now_ms())
    bench.send_later("a", "b", "c", delay=30)
    bench.turn(40)
    assert [(message.body, message.produced_at) for message in bench.take()] == [(body, sent_at) for body in "abc"]


def test_a_message_that_is_moved_to_another_time_says_when_it_was_sent() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    sent_at = rfc3339(bench.clock.now_ms())
    results = bench.send_later("a", "b", "c", delay=300)
    bench.clock.pass_time(10)
    for result in results[1:]:
        assert result.scheduled_id is not None
        bench.deployment.delayed.reschedule(result.scheduled_id, delay=20)
    bench.turn(400)
    found = [(message.body, message.produced_at) for message in bench.take()]
    assert sorted(found, key=str) == [(body, sent_at) for body in "abc"]


@pytest.fixture
def without_object() -> Bench:
    """Returns a queue with a row whose object is missing."""
    bench = Bench(CallByCall(MemoryStore()), settings=Settings(inline_bytes=16))
    bench.deployment.produce("orders", [NewMessage(body="x" * 100)])
    for key in bench.blobs.list(""):
        bench.blobs.delete(key)
    return bench


def test_a_row_that_cannot_be_read_is_an_error_where_its_messages_are_needed(without_object: Bench) -> None:
    context = without_object.deployment.context
    with pytest.raises(Corrupt):
        read_messages(context, context.log(QUEUE), 0, [(0, 0)], strict=True)
    assert "UnreadableMessages" not in dict(without_object.meter.metrics)
    assert read_messages(context, context.log(QUEUE), 0, [(0, 0)]) == []
    assert ("UnreadableMessages", 1) in without_object.meter.metrics


def test_a_row_that_has_expired_is_none_and_nobody_hears_of_it(without_object: Bench) -> None:
    context = without_object.deployment.context
    without_object.clock.pass_time(4 * 86_400)
    assert read_messages(context, context.log(QUEUE), 0, [(0, 0)], strict=True) == []
    assert "UnreadableMessages" not in dict(without_object.meter.metrics)
