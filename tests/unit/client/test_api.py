import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hourwheel.client import (
    NO_PUSH,
    AddressedMessage,
    Api,
    BadRequest,
    Closed,
    Conflict,
    DeadSelection,
    Message,
    NotFound,
    PushStatus,
    PushTarget,
    QueueOffset,
    RetryPolicy,
    SendResult,
    ServerFault,
    ServerUnavailable,
    Settlement,
    TooLarge,
    Unauthorized,
)
from tests.unit.client.fake import TOKEN, FakeServer
from tests.unit.client.ids import StillIds


def test_produced_messages_come_back_as_they_were_sent(api: Api) -> None:
    text = Message("päid", key="k", tags=["eu"], headers={"a": "b"}, id="o-7")
    accepted = api.produce("orders", [text, Message(b"\0\xff")])
    assert accepted[0] == SendResult("o-7", 0, 0)
    assert accepted[1].offset == 1

    [pull] = api.pull("orders", "billing", "host-1").pulls
    first, second = pull.messages
    assert (first.body, first.key, first.tags, first.headers, first.id) == ("päid", "k", ["eu"], {"a": "b"}, "o-7")
    assert (second.body, second.key, second.tags, second.attempt) == (b"\0\xff", None, [], 1)
    assert first.produced_at == datetime(2026, 11, 20, 9, tzinfo=UTC)


def test_a_batch_may_span_subjects(api: Api, server: FakeServer) -> None:
    api.produce_many([AddressedMessage("a", subject="one"), AddressedMessage("b", subject="two")])
    assert (server.bodies("one"), server.bodies("two")) == (["a"], ["b"])


def test_settlements_are_answered_one_by_one(api: Api) -> None:
    api.produce("orders", [Message("a"), Message("b")])
    [pull] = api.pull("orders", "billing", "host-1").pulls

    def status(**what: object) -> str:
        return api.settle("orders", "billing", [Settlement(receipt=pull.receipt, **what)])[0].status

    assert status(extend_seconds=60) == "extended"
    assert status(ack=[0]) == "open"
    assert status(ack=[1]) == "settled"
    assert status(dead=[1]) == "stale"


def test_a_pull_carries_settlements_along(api: Api, server: FakeServer) -> None:
    api.produce("orders", [Message("a")])
    [pull] = api.pull("orders", "billing", "host-1").pulls
    pulled = api.pull("orders", "billing", "host-1", settle=[Settlement(receipt=pull.receipt)])
    assert [settled.status for settled in pulled.settled] == ["settled"]
    assert server.broker.group("orders", "billing").acked == ["a"]


def test_subjects_and_groups_are_made_shown_listed_moved_and_deleted(api: Api) -> None:
    assert api.put_subject("orders", queues=2).queues == 2
    assert api.put_subject("orders", retention_seconds=60).queues == 2
    assert api.get_subject("orders").retention_seconds == 60
    api.put_subject("returns")
    page = api.list_subjects(limit=1)
    assert [subject.subject for subject in page.subjects] == ["orders"]
    assert [subject.subject for subject in api.list_subjects(after=page.next).subjects] == ["returns"]

    assert api.put_group("orders", "billing", max_attempts=3).max_attempts == 3
    assert api.get_group("orders", "billing").start == "earliest"
    assert [group.group for group in api.list_groups("orders").groups] == ["billing"]
    api.produce("orders", [Message("a")])
    assert api.lag("orders", "billing").waiting == 1
    assert api.seek("orders", "billing", "end")[0] == QueueOffset(0, 1)
    assert api.seek("orders", "billing", datetime(2026, 1, 1, tzinfo=UTC))[0] == QueueOffset(0, 0)
    assert api.seek("orders", "billing", QueueOffset(0, 1))[0] == QueueOffset(0, 1)

    api.delete_group("orders", "billing")
    with pytest.raises(NotFound):
        api.get_group("orders", "billing")
    api.delete_subject("orders")
    with pytest.raises(NotFound):
        api.get_subject("orders")
    assert api.health().status == "ok"


def test_a_batch_that_was_one_request_too_many_is_sent_again(api: Api, server: FakeServer) -> None:
    server.fail("produce", status=429)
    api.produce("orders", [Message("a")])
    assert server.bodies("orders") == ["a"]


def test_groups_are_listed_page_by_page(api: Api) -> None:
    for number in range(3):
        api.put_group("orders", f"g{number}")
    page = api.list_groups("orders", limit=2)
    assert ([group.group for group in page.groups], page.next) == (["g0", "g1"], "g1")
    page = api.list_groups("orders", after=page.next)
    assert ([group.group for group in page.groups], page.next) == (["g2"], None)


PUSHES: list[tuple[PushTarget, dict[str, object]]] = [
    (PushTarget(kind="https", url="https://example.com/a"), {"url": "https://example.com/a"}),
    (
        PushTarget(kind="sqs", arn="arn:aws:sqs:eu-west-1:1:q", batch=5),
        {"arn": "arn:aws:sqs:eu-west-1:1:q", "batch": 5},
    ),
    (
        PushTarget(kind="python", name="bill", concurrency=1, timeout_seconds=25),
        {"name": "bill", "concurrency": 1, "timeout_seconds": 25},
    ),
]


@pytest.mark.parametrize(("target", "sent"), PUSHES)
def test_a_group_may_be_delivered_to_a_target(
    api: Api, server: FakeServer, target: PushTarget, sent: dict[str, object]
) -> None:
    assert api.put_group("orders", "billing").push is None
    made = api.put_group("orders", "billing", push=target).push
    assert server.calls("put_group")[1].body == {"push": {"kind": target.kind, **sent}}
    assert made is not None
    assert (made.kind, made.batch) == (target.kind, target.batch or 10)
    assert api.put_group("orders", "billing", max_attempts=3).push == made
    assert api.list_groups("orders").groups[0].push == api.get_group("orders", "billing").push == made
    assert api.put_group("orders", "billing", push=NO_PUSH).push is None
    assert server.calls("put_group")[3].body == {"push": None}


def test_the_state_of_a_delivery(api: Api) -> None:
    api.put_group("orders", "billing", push=PushTarget(kind="https", url="https://example.com/a"))
    assert api.push("orders", "billing") == PushStatus(
        state="paused",
        paused_until=datetime(2026, 11, 20, 9, tzinfo=UTC),
        failures=5,
        last_error="answered 500",
        signing_secret="whsec_c2VjcmV0",
    )
    api.put_group("orders", "billing", push=NO_PUSH)
    with pytest.raises(NotFound):
        api.push("orders", "billing")


def test_dead_letters_are_listed_shown_redriven_and_dropped(api: Api) -> None:
    api.produce("orders", [Message("a"), Message("b"), Message("c")])
    [pull] = api.pull("orders", "billing", "host-1").pulls
    api.settle("orders", "billing", [Settlement(receipt=pull.receipt, dead=[0, 1, 2])])

    page = api.list_dead("orders", "billing", limit=2)
    rest = api.list_dead("orders", "billing", after=page.next)
    assert [letter.body for letter in [*page.messages, *rest.messages]] == ["a", "b", "c"]
    first = page.messages[0]
    assert api.get_dead("orders", "billing", first.dead_id) == first
    assert first.reason == "rejected"

    assert api.redrive("orders", "billing", DeadSelection.named([first.dead_id])) == 1
    assert api.drop("orders", "billing", DeadSelection.between(datetime(2026, 1, 1, tzinfo=UTC), None)) == 2
    assert api.drop("orders", "billing", DeadSelection.everything()) == 0


def test_times_are_sent_in_utc_with_milliseconds(api: Api, server: FakeServer) -> None:
    api.put_group("orders", "billing")
    api.seek("orders", "billing", datetime.fromisoformat("2026-11-20T10:00:00.5+01:00"))
    assert server.calls("seek")[0].body == {"time": "2026-11-20T09:00:00.500Z"}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, BadRequest),
        (401, Unauthorized),
        (404, NotFound),
        (405, BadRequest),
        (408, ServerUnavailable),
        (409, Conflict),
        (413, TooLarge),
        (429, ServerUnavailable),
        (500, ServerUnavailable),
        (502, ServerUnavailable),
        (503, ServerUnavailable),
        (504, ServerUnavailable),
        (507, ServerFault),
    ],
)
def test_each_refusal_is_an_error_of_its_own(server: FakeServer, status: int, error: type[Exception]) -> None:
    server.fail("health", status=status)
    with Api(server.url, retry_seconds=0, ids=StillIds()) as api, pytest.raises(error, match="as told") as caught:
        api.health()
    assert caught.value.status == status


def test_an_error_carries_the_facts_of_the_problem(api: Api) -> None:
    with pytest.raises(BadRequest) as caught:
        api.produce("orders", [Message("a"), Message("b", key="bad")])
    error = caught.value
    assert (error.status, error.slug, error.problem.field) == (400, "field-invalid", "messages[1].key")
    assert error.problem.instance == "correlation-1"
    assert str(error) == "the key is bad"


def test_a_gateways_own_error_keeps_its_text(api: Api, server: FakeServer) -> None:
    server.fail("health", status=403, raw=b'{"message":"Forbidden"}')
    with pytest.raises(Unauthorized, match="403"):
        api.health()
    server.fail("health", status=400, raw=b"<html>no</html>")
    with pytest.raises(BadRequest, match="<html>no</html>"):
        api.health()


def test_an_answer_that_is_not_ours_is_a_fault(api: Api, server: FakeServer) -> None:
    server.fail("health", raw=b"<html>welcome</html>")
    with pytest.raises(ServerFault, match="is there a Hourwheel server"):
        api.health()


def test_the_token_is_sent() -> None:
    with FakeServer(token=TOKEN).running() as server:
        with Api(server.url) as stranger, pytest.raises(Unauthorized) as caught:
            stranger.health()
        assert caught.value.slug == "token-missing"
        with Api(server.url, token=TOKEN) as api:
            assert api.health().status == "ok"


def test_names_are_quoted(api: Api, server: FakeServer) -> None:
    with pytest.raises(NotFound):
        api.get_subject("a/b c")
    assert server.requests[0].target == "/v1/subjects/a%2Fb%20c"


def test_a_base_path_is_kept(server: FakeServer) -> None:
    with Api(server.url + "/prod/") as api, pytest.raises(NotFound) as caught:
        api.health()
    assert server.requests[0].target == "/prod/v1/health"
    assert caught.value.slug == "route-unknown"


@pytest.mark.parametrize("url", ["localhost:7420", "ftp://host", "http://"])
def test_a_url_without_scheme_or_host_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http://"):
        Api(url)


INTERRUPTIONS = [{"cut": True}, {"lose": True}, *({"status": status} for status in (408, 429, 500, 502, 503, 504))]


@pytest.mark.parametrize("how", INTERRUPTIONS, ids=str)
def test_what_is_safe_to_repeat_is_repeated(api: Api, server: FakeServer, how: dict[str, object]) -> None:
    server.fail("produce", times=2, **how)
    api.produce("orders", [Message("a")], idempotency_key="key-1")
    assert server.bodies("orders") == ["a"]
    assert [request.body["idempotency_key"] for request in server.calls("produce")] == ["key-1"] * 3


@pytest.mark.parametrize("status", [408, 500, 503])
def test_a_pull_and_its_settlement_are_repeated(api: Api, server: FakeServer, status: int) -> None:
    api.produce("orders", [Message("a")])
    server.fail("pull", times=2, status=status)
    [pull] = api.pull("orders", "billing", "host-1").pulls
    server.fail("settle", times=2, status=status)
    [settled] = api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])
    assert settled.status == "settled"


@pytest.mark.parametrize("status", [408, 500])
def test_what_is_not_safe_to_repeat_is_tried_once(api: Api, server: FakeServer, status: int) -> None:
    server.fail("produce", status=status)
    with pytest.raises(ServerUnavailable):
        api.produce("orders", [Message("a")])
    assert len(server.calls("produce")) == 1


def test_a_full_volume_is_told_at_once(api: Api, server: FakeServer) -> None:
    server.fail("produce", status=507)
    with pytest.raises(ServerFault):
        api.produce("orders", [Message("a")], idempotency_key="key-1")


def test_produce_without_a_key_is_not_repeated(api: Api, server: FakeServer) -> None:
    server.fail("produce", lose=True)
    with pytest.raises(ServerUnavailable) as caught:
        api.produce("orders", [Message("a")])
    assert caught.value.sent
    assert len(server.calls("produce")) == 1


def test_redrive_is_not_repeated(api: Api, server: FakeServer) -> None:
    api.put_group("orders", "billing")
    server.fail("redrive", status=503)
    with pytest.raises(ServerUnavailable):
        api.redrive("orders", "billing", DeadSelection.everything())


@pytest.mark.parametrize(
    "call",
    [
        lambda api: api.decide_held("orders", "ledger", "dead", keys=["a"]),
        lambda api: api.decide_held("orders", "ledger", "retry"),
        lambda api: api.move_queue("orders", 0, "fast"),
    ],
    ids=["a decision about a key", "a decision about all keys", "a move"],
)
def test_a_call_of_an_operator_whose_answer_is_lost_is_not_repeated(
    api: Api, server: FakeServer, call: Callable[[Api], object]
) -> None:
    """A second decision would be about the next message of the key, and a second move is refused."""
    server.fail("unknown", cut=True)
    with pytest.raises(ServerUnavailable) as caught:
        call(api)
    assert caught.value.sent
    assert len(server.requests) == 1


def test_the_server_says_when_to_come_back(server: FakeServer) -> None:
    server.fail("health", status=503, retry_after="3600")
    with Api(server.url, retry_seconds=10, ids=StillIds()) as api, pytest.raises(ServerUnavailable) as caught:
        api.health()
    assert caught.value.retry_after_seconds == 3600


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1"])
def test_an_unreachable_server_is_named(address: str) -> None:
    refused = pytest.raises(ServerUnavailable, match=f"at {re.escape(address)} cannot be reached")
    with Api(f"http://{address}", retry_seconds=0, ids=StillIds()) as api, refused as caught:
        api.health()
    assert not caught.value.sent


def test_connections_are_kept_and_replaced_when_the_server_closed_them(api: Api, server: FakeServer) -> None:
    for _ in range(5):
        api.health()
    assert server.connections == 1
    server.close_connections()
    server.wait_until(lambda _: not server._sockets)
    api.produce("orders", [Message("a")])  # not safe to repeat: it must not meet the dead connection
    assert server.connections == 2


def test_close_ends_a_pull_that_waits(server: FakeServer) -> None:
    api = Api(server.url)
    caught: list[BaseException] = []

    def pull() -> None:
        try:
            api.pull("orders", "billing", "host-1", wait_seconds=20)
        except Closed as error:
            caught.append(error)

    thread = threading.Thread(target=pull)
    thread.start()
    server.wait_until(lambda broker: broker.waiting_pulls == 1)
    api.close()
    thread.join()
    assert len(caught) == 1
    with pytest.raises(Closed):
        api.health()
    with Api(server.url) as other:
        other.produce("orders", [Message("a")])  # lets the pull at the server end


def test_a_time_without_a_zone_is_refused_before_anything_is_sent(api: Api, server: FakeServer) -> None:
    with pytest.raises(ValueError, match="needs a zone"):
        api.seek("orders", "billing", datetime(2026, 11, 20))  # noqa: DTZ001 - what is refused
    with pytest.raises(ValueError, match="needs a zone"):
        DeadSelection.between(None, datetime(2026, 11, 20))  # noqa: DTZ001 - what is refused
    assert not server.requests


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_cannot_express_is_refused_and_not_left_out(api: Api, number: float) -> None:
    with pytest.raises(BadRequest, match="messages_per_second must be a finite number"):
        api.put_group("orders", "billing", messages_per_second=number)
    with pytest.raises(BadRequest, match="first_seconds must be a finite number"):
        api.put_group("orders", "billing", retry=RetryPolicy(first_seconds=number))
    with pytest.raises(BadRequest, match="delays_seconds must be a finite number"):
        api.put_group("orders", "billing", retry=RetryPolicy(delays_seconds=(1, number)))
