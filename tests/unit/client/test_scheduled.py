import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec import structs

from hourwheel.client import (
    AddressedMessage,
    Api,
    AsyncProducer,
    BadRequest,
    Message,
    NotFound,
    PendingCounts,
    PendingHour,
    Producer,
    Retry,
    RetryPolicy,
    SendResult,
    ServerUnavailable,
)
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillClock, StillIds

LONG_SECONDS = 120.0
NEW_YEAR = datetime(2027, 1, 1, 9, tzinfo=UTC)

WAITS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"delay": 90}, {"delay": 90}),
    ({"delay": 0.5}, {"delay": 0.5}),
    ({"delay": 0}, {"delay": 0}),
    ({"delay": "500ms"}, {"delay": "500ms"}),
    ({"delay": "1.5h"}, {"delay": "1.5h"}),
    ({"delay": timedelta(days=90, milliseconds=1)}, {"delay": 7_776_000.001}),
    ({"deliver_at": NEW_YEAR}, {"deliver_at": "2027-01-01T09:00:00.000Z"}),
    (
        {"deliver_at": datetime(2027, 1, 1, 10, tzinfo=timezone(timedelta(hours=1)))},
        {"deliver_at": "2027-01-01T09:00:00.000Z"},
    ),
    ({"deliver_at": NEW_YEAR + timedelta(microseconds=1)}, {"deliver_at": "2027-01-01T09:00:00.001Z"}),
    ({"deliver_at": "2027-01-01T10:00:00+01:00"}, {"deliver_at": "2027-01-01T09:00:00.000Z"}),
    ({"delay": "90d", "precision": "minute"}, {"delay": "90d", "precision": "minute"}),
]

BAD_WAITS: list[tuple[dict[str, Any], str]] = [
    ({"delay": -1}, "0 or more"),
    ({"delay": float("nan")}, "number of seconds"),
    ({"delay": float("inf")}, "number of seconds"),
    ({"delay": timedelta(seconds=-1)}, "0 or more"),
    ({"delay": "soon"}, "'90d', got 'soon'"),
    ({"delay": "10"}, "with ms, s, m, h or d"),
    ({"delay": "-5m"}, "must be 0 or more, got -5m"),
    ({"delay": "-0s"}, "must be 0 or more, got -0s"),
    ({"delay": "--5m"}, "with ms, s, m, h or d"),
    ({"delay": ""}, "with ms, s, m, h or d"),
    ({"deliver_at": datetime(2027, 1, 1, 9)}, "no zone, so its moment is unknown"),  # noqa: DTZ001 - a time without a zone is what the test is for
    ({"deliver_at": "2027-01-01T09:00:00"}, "RFC 3339"),
    ({"deliver_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "out of range"),
    ({"deliver_at": "tomorrow"}, "RFC 3339"),
    ({"deliver_at": ""}, "RFC 3339"),
    ({"delay": 1, "deliver_at": NEW_YEAR}, "not both"),
]

BAD_PRECISIONS: list[tuple[dict[str, Any], str]] = [
    ({"delay": "90d", "precision": "second"}, "'second'"),
    ({"delay": "90d", "precision": ""}, '"minute" or left out'),
    ({"precision": "minute"}, "only a message with delay or deliver_at"),
]

CALLS = [
    ("show_scheduled", lambda api, accepted: api.get_scheduled(accepted)),
    ("cancel", lambda api, accepted: api.cancel(accepted)),
    ("reschedule", lambda api, accepted: api.reschedule(accepted, delay="2h")),
]


def schedule(api: Api, *bodies: str, subject: str = "orders", **wait: Any) -> list[str]:
    accepted = api.produce(subject, [Message(body, **(wait or {"delay": "1h"})) for body in bodies])
    return [position.scheduled_id or "" for position in accepted]


@pytest.mark.parametrize(("wait", "wire"), WAITS)
def test_a_wait_travels_as_the_server_reads_it(api: Api, server: FakeServer, wait: Any, wire: Any) -> None:
    for message in (Message("a", **wait), Message(b"\xff", **wait)):
        api.produce("orders", [message])
    text, data = [request.body["messages"][0] for request in server.calls("produce")]
    assert text == {"body": "a", **wire}
    assert data == {"body_base64": "/w==", **wire}


@pytest.mark.parametrize(("wait", "says"), BAD_WAITS)
def test_a_bad_wait_is_told_where_it_is_said(server: FakeServer, wait: Any, says: str) -> None:
    with Producer(server.url, subject="orders") as producer:
        with pytest.raises(ValueError, match=says):
            producer.send("a", **wait)
        with pytest.raises(ValueError, match=says):
            Message("a", **wait)
        with pytest.raises(ValueError, match=says):
            AddressedMessage("a", subject="orders", **wait)
        if "deliver_at" not in wait:
            with pytest.raises(ValueError, match=says):
                Retry(**wait)
    assert not server.requests


@pytest.mark.parametrize(("wait", "says"), [*BAD_WAITS, ({}, "say when"), ({"delay": "733d"}, "too long")])
def test_a_message_is_not_moved_to_a_bad_time(api: Api, server: FakeServer, wait: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        api.reschedule("s-1", **wait)
    assert not server.requests


@pytest.mark.parametrize(("fields", "says"), BAD_PRECISIONS)
def test_a_bad_precision_is_told_where_it_is_said(server: FakeServer, fields: Any, says: str) -> None:
    with Producer(server.url, subject="orders") as producer, pytest.raises(ValueError, match=says):
        producer.send("a", **fields)
    with pytest.raises(ValueError, match=says):
        Message("a", **fields)
    assert not server.requests


def test_producers_send_the_precision(server: FakeServer) -> None:
    with Producer(server.url, subject="orders") as producer:
        producer.send("a", delay="1h", precision="minute").result(LONG_SECONDS)

    async def send() -> None:
        async with AsyncProducer(server.url, subject="orders") as producer:
            await producer.send("a", delay="1h", precision="minute")

    asyncio.run(send())
    sent = [request.body["messages"][0] for request in server.calls("produce")]
    assert sent == [{"body": "a", "delay": "1h", "precision": "minute"}] * 2


def test_a_future_says_when_the_message_is_due(server: FakeServer) -> None:
    with Producer(server.url, subject="orders", ids=StillIds()) as producer:
        at_once, later = producer.send("a"), producer.send("b", deliver_at=NEW_YEAR, message_id="o-7")
        assert at_once.result(LONG_SECONDS) == SendResult("m-1", 0, 0)
        accepted = later.result(LONG_SECONDS)
        assert (accepted.id, accepted.queue, accepted.offset, accepted.scheduled) == ("o-7", None, None, NEW_YEAR)
        assert accepted.scheduled_id in server.broker.scheduled
        batch = producer.send_batch(["c", Message("d", delay="90d"), Message("e", delay=0)])
    assert [position.scheduled is None for position in batch] == [True, False, True]
    assert batch[1].scheduled == datetime(2027, 2, 18, 9, tzinfo=UTC)


def test_a_lost_answer_neither_doubles_nor_lengthens_a_delay(server: FakeServer) -> None:
    server.fail("produce", lose=True)
    server.fail("produce", status=503)
    with Producer(server.url, subject="orders", ids=StillIds()) as producer:
        accepted = producer.send("a", delay=60).result(LONG_SECONDS)
    assert list(server.broker.scheduled) == [accepted.scheduled_id]
    assert len({str(request.body) for request in server.calls("produce")}) == 1


def test_a_delay_that_is_too_long_fails_alone(server: FakeServer) -> None:
    with Producer(server.url, subject="orders", linger_seconds=60, batch_messages=5, ids=StillIds()) as producer:
        futures = [producer.send(str(days), delay=f"{days}d") for days in (1, 2, 733, 3, 4)]
        errors = [future.exception(LONG_SECONDS) for future in futures]
    assert [type(error) for error in errors] == [type(None), type(None), BadRequest, type(None), type(None)]
    assert len(server.broker.scheduled) == 4


def test_a_subject_may_clamp_delays(api: Api) -> None:
    assert not api.put_subject("orders").clamp_delays
    assert api.put_subject("orders", clamp_delays=True).clamp_delays
    assert api.put_subject("orders", queues=1).clamp_delays
    [accepted] = api.produce("orders", [Message("a", delay="1000d")])
    assert accepted.scheduled == datetime(2028, 11, 21, 9, tzinfo=UTC)
    assert not api.put_subject("orders", clamp_delays=False).clamp_delays


def test_a_delayed_message_is_looked_up_until_it_was_sent(api: Api, server: FakeServer) -> None:
    [scheduled_id] = schedule(api, "a", deliver_at=NEW_YEAR)
    waiting = api.get_scheduled(scheduled_id)
    assert (waiting.state, waiting.subject, waiting.deliver_at) == ("waiting", "orders", NEW_YEAR)
    assert (waiting.dispatched_at, waiting.queue, waiting.offset) == (None, None, None)
    server.broker.fall_due(scheduled_id)
    sent = api.get_scheduled(scheduled_id)
    assert (sent.state, sent.id, sent.queue, sent.offset) == ("dispatched", waiting.id, 0, 0)
    assert sent.dispatched_at == datetime(2026, 11, 20, 9, tzinfo=UTC)


def test_a_cancel_says_whether_it_came_in_time(api: Api, server: FakeServer) -> None:
    early, late = schedule(api, "a", "b")
    server.broker.fall_due(late)
    assert api.cancel(early).state == "cancelled"
    assert api.cancel(early).state == "cancelled"
    assert api.cancel(late).state == "dispatched"
    assert api.get_scheduled(early).state == "cancelled"


@pytest.mark.parametrize(
    ("wait", "sent"),
    [
        ({"delay": "2h"}, "2026-11-20T11:00:00.000Z"),
        ({"delay": timedelta(days=1)}, "2026-11-21T09:00:00.000Z"),
        ({"delay": 0.25}, "2026-11-20T09:00:00.250Z"),
        ({"deliver_at": NEW_YEAR}, "2027-01-01T09:00:00.000Z"),
    ],
)
def test_a_message_is_moved_to_a_time(api: Api, server: FakeServer, wait: Any, sent: str) -> None:
    [scheduled_id] = schedule(api, "a")
    moved = api.reschedule(scheduled_id, **wait)
    assert server.calls("reschedule")[0].body == {"deliver_at": sent}
    assert (moved.state, moved.deliver_at) == ("moved", datetime.fromisoformat(sent))
    assert moved.scheduled_id != scheduled_id
    assert (
        api.get_scheduled(scheduled_id)
        == api.get_scheduled(moved.scheduled_id)
        == structs.replace(moved, state="waiting")
    )


def test_what_is_not_waiting_is_not_moved(api: Api, server: FakeServer) -> None:
    cancelled, sent = schedule(api, "a", "b")
    api.cancel(cancelled)
    server.broker.fall_due(sent)
    assert api.reschedule(cancelled, delay=60).state == "cancelled"
    assert api.reschedule(sent, delay=60).state == "dispatched"


@pytest.mark.parametrize("how", [{"status": 503}, {"status": 500}, {"lose": True}, {"cut": True}], ids=str)
@pytest.mark.parametrize(("name", "call"), CALLS)
def test_a_call_without_a_definite_answer_is_repeated(
    api: Api, server: FakeServer, name: str, call: Any, how: dict[str, Any]
) -> None:
    [scheduled_id] = schedule(api, "a")
    server.fail(name, times=2, **how)
    assert call(api, scheduled_id).id == "m-2"
    requests = server.calls(name)
    assert len(requests) == 3
    assert [request.body for request in requests] == [requests[0].body] * 3


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_ids_that_lead_nowhere(api: Api, server: FakeServer, name: str, call: Any) -> None:
    with pytest.raises(BadRequest) as made_up:
        call(api, "made/up")
    assert made_up.value.slug == "scheduled-id-invalid"
    assert server.requests[0].target == "/v1/scheduled/made%2Fup"
    with pytest.raises(NotFound) as gone:
        call(api, "s-77")
    assert gone.value.slug == "scheduled-unknown"
    server.fail(name, status=503, times=-1)
    with (
        Api(server.url, retry_seconds=0, ids=StillIds(), clock=StillClock()) as hasty,
        pytest.raises(ServerUnavailable),
    ):
        call(hasty, "s-77")


def test_what_is_due_is_counted_by_the_hour(api: Api, server: FakeServer) -> None:
    soon, _, _ = schedule(api, "a", "b", "c", delay="90m")
    schedule(api, "d", delay="71h")
    schedule(api, "e", delay="80h")
    schedule(api, "f", subject="returns")
    api.cancel(soon)
    first, last = datetime(2026, 11, 20, 10, tzinfo=UTC), datetime(2026, 11, 23, 8, tzinfo=UTC)
    hours = [PendingHour(hour=first, messages=2), PendingHour(hour=last, messages=1)]
    counted = api.pending("orders")
    # Half past ten by the clock of the fake: 90 minutes from nine.
    following = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
    assert counted == PendingCounts(subject="orders", messages=3, hours=hours, total=4, next_at=following)
    assert api.pending("orders", hours=2).hours == hours[:1]
    assert [request.target for request in server.calls("pending")] == [
        "/v1/subjects/orders/scheduled",
        "/v1/subjects/orders/scheduled?hours=2",
    ]
    with pytest.raises(NotFound):
        api.pending("gone")


def test_delayed_messages_are_listed_page_by_page(api: Api, server: FakeServer) -> None:
    schedule(api, "a", "b", "c", delay="90m")
    schedule(api, "d", subject="returns")
    page = api.list_subject_delayed("orders", since=NEW_YEAR - timedelta(days=60), until=NEW_YEAR, limit=2)
    rest = api.list_subject_delayed("orders", after=page.next, bodies=True)
    assert [(each.state, each.body, each.tags) for each in page.messages] == [("waiting", None, [])] * 2
    assert [each.body for each in rest.messages] == ["c"]
    assert rest.next is None
    assert [each.subject for each in api.list_delayed().messages] == ["returns", "orders", "orders", "orders"]
    assert [request.target for request in server.calls("list_subject_delayed")] == [
        "/v1/subjects/orders/delayed?from=2026-11-02T09%3A00%3A00.000Z&to=2027-01-01T09%3A00%3A00.000Z&limit=2",
        "/v1/subjects/orders/delayed?limit=100&after=2&bodies=true",
    ]
    with pytest.raises(NotFound):
        api.list_subject_delayed("gone")
    with pytest.raises(ValueError, match="needs a zone"):
        api.list_delayed(since=datetime(2027, 1, 1))  # noqa: DTZ001 - a time without a zone is what the test is for


def test_messages_of_a_deleted_subject_are_found(api: Api, server: FakeServer) -> None:
    ids = schedule(api, "a", "b", "c", deliver_at=NEW_YEAR)
    api.delete_subject("orders")
    for scheduled_id in ids:
        server.broker.fall_due(scheduled_id)
    page = api.list_orphans("orders", limit=2)
    rest = api.list_orphans("orders", after=page.next)
    assert [orphan.body for orphan in [*page.messages, *rest.messages]] == ["a", "b", "c"]
    assert (page.messages[0].due_at, page.messages[0].dead_id) == (NEW_YEAR, "0-0-0")
    assert api.list_orphans("returns").messages == []


@pytest.mark.parametrize(
    ("policy", "sent"),
    [
        (
            RetryPolicy(first_seconds=1, factor=3, cap_seconds=600),
            {"first_seconds": 1, "factor": 3, "cap_seconds": 600},
        ),
        (RetryPolicy(first_seconds=0), {"first_seconds": 0}),
        (RetryPolicy(delays_seconds=(1, 10, 60)), {"delays_seconds": [1, 10, 60]}),
    ],
)
def test_a_group_may_have_a_retry_policy(api: Api, server: FakeServer, policy: RetryPolicy, sent: Any) -> None:
    assert api.put_group("orders", "billing").retry == RetryPolicy(first_seconds=5, factor=2, cap_seconds=7_200)
    assert api.put_group("orders", "billing", retry=policy).retry == policy
    assert server.calls("put_group")[1].body == {"retry": sent}
    assert api.put_group("orders", "billing", max_attempts=3).retry == policy
    assert api.lag("orders", "billing").backing_off == 0
