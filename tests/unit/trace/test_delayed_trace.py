"""A delayed message is found by its own id: while it waits, and once it is handed over."""

import pytest

from hourwheel.context import Settings
from hourwheel.errors import NotFound
from hourwheel.model.messages import NewMessage
from hourwheel.model.traces import MessageTrace, TracePage
from hourwheel.trace import messages, scheduled
from hourwheel.trace.messages import SearchSpan
from hourwheel.trace.scheduled import BucketRow
from tests.support import AT_ONCE, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0))


def found(bench: Bench, message_id: str) -> MessageTrace:
    (trace,) = bench.deployment.messages.trace("orders", message_id, SearchSpan()).messages
    return trace


def test_it_is_found_before_and_after_its_time(bench: Bench) -> None:
    first, second = bench.send_later("a", "b", delay=5)
    bench.send_later("another subject", delay=5, subject="away")
    for accepted in (first, second):
        before = found(bench, accepted.id)
        assert (before.state, before.id, before.scheduled_id) == ("scheduled", accepted.id, accepted.scheduled_id)
    bench.turn(60)
    after = found(bench, second.id)
    assert (after.state, after.queue, after.offset, after.scheduled_id) == ("accepted", 0, 1, second.scheduled_id)
    assert after.message is not None
    assert after.message.body == "b"


def test_it_is_found_where_it_was_moved_once(bench: Bench) -> None:
    (accepted,) = bench.send_later("a", delay=5)
    moved = bench.deployment.delayed.reschedule(accepted.scheduled_id or "", delay="3h")
    trace = found(bench, accepted.id)
    assert (trace.state, trace.due_at, trace.scheduled_id) == ("scheduled", moved.deliver_at, moved.scheduled_id)
    bench.deployment.delayed.cancel(moved.scheduled_id)
    assert found(bench, accepted.id).state == "cancelled"


def test_an_id_of_a_sender_is_searched_in_its_time_in_queues_and_buckets(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "_ROWS", 2)
    monkeypatch.setattr(scheduled, "_BUCKETS", 2)
    began_ms = bench.clock.ms
    bench.deployment.produce("orders", [NewMessage(body="now", id="mine")])
    for hours in range(1, 6):
        for minutes in (0, 1):
            delay = f"{60 * hours + minutes}m"
            bench.deployment.produce("orders", [NewMessage(body="later", id="mine", delay=delay)])
    traces: list[MessageTrace] = []
    page = TracePage([], "0:0")
    while page.next is not None:
        start = messages.MessagePosition.parse(page.next) or BucketRow.parse(page.next)
        page = bench.deployment.messages.trace("orders", "mine", SearchSpan(began_ms, start=start))
        traces += page.messages
    assert [trace.state for trace in traces] == ["accepted"] + ["scheduled"] * 10
    assert len({trace.scheduled_id for trace in traces}) == 11


def test_a_search_gets_past_a_row_with_more_messages_of_an_id_than_an_answer_holds(bench: Bench) -> None:
    began_ms, most = bench.clock.ms, messages.MOST
    bench.deployment.produce("orders", [NewMessage(body="later", id="mine", delay="5m") for _ in range(2 * most + 1)])
    pages = [bench.deployment.messages.trace("orders", "mine", SearchSpan(began_ms))]
    while pages[-1].next is not None and len(pages) < 5:
        start = BucketRow.parse(pages[-1].next)
        pages.append(bench.deployment.messages.trace("orders", "mine", SearchSpan(began_ms, start=start)))
    assert [len(page.messages) for page in pages] == [most, most, 1]
    assert len({trace.scheduled_id for page in pages for trace in page.messages}) == 2 * most + 1


def test_an_id_that_nobody_gave_is_not_found(bench: Bench) -> None:
    (accepted,) = bench.send_later("a", delay=5)
    with pytest.raises(NotFound, match="subject 'orders' has no message with the id"):
        bench.deployment.messages.trace("orders", accepted.id.replace("-0", "-7"), SearchSpan())
