"""A consumer whose server is away, throttles, refuses, or loses answers."""

import pytest

from hourwheel.client import BadRequest, Delivery, Unauthorized
from tests.unit.client.fake import TOKEN, FakeServer
from tests.unit.client.ids import StillIds
from tests.unit.client.runs import Start
from tests.unit.client.test_consumer import consumer, fill, group, settled


def test_a_lost_answer_to_a_settlement_loses_nothing(server: FakeServer, start: Start) -> None:
    fill(server, "a", "b")
    server.fail("settle", lose=True)
    server.fail("settle", status=503)
    with start(server, lambda message: None, wait_seconds=5):
        server.wait_until(lambda broker: settled(broker, 2))
    assert len(group(server).acked) == 2
    assert not group(server).retries


def test_a_lost_pull_is_repeated_with_its_settlements(server: FakeServer, start: Start) -> None:
    fill(server, *map(str, range(6)))
    run = start(server, lambda message: None, max_messages=2, settle_linger_seconds=60)
    server.fail("pull")
    server.fail("pull", lose=True)
    server.fail("pull", status=503)
    with run:
        server.wait_until(lambda broker: len(broker.group("orders", "billing").acked) >= 2)
        server.broker.end_leases("orders", "billing")  # of the pull whose answer was lost
        server.wait_until(lambda broker: len(set(broker.group("orders", "billing").acked)) == 6)


def test_an_unknown_receipt_spoils_nothing_but_itself(server: FakeServer, start: Start) -> None:
    fill(server, "a", "b")

    def forget(message: Delivery) -> None:
        if message.body == "a":
            with server.broker.changed:
                group(server).leases.clear()

    with start(server, forget, settle_linger_seconds=60, max_messages=2) as running:
        server.wait_until(lambda _: running.lost_messages == 2)
        fill(server, "c")
        server.wait_until(lambda broker: "c" in broker.group("orders", "billing").acked)
    assert running.error is None


def test_a_consumer_outlasts_a_gateway_that_throttles_it(server: FakeServer, start: Start) -> None:
    class CountingIds(StillIds):
        pauses = 0

        def jitter(self) -> float:
            self.pauses += 1
            return 0.0

    ids = CountingIds()
    server.fail("pull", status=429, raw=b'{"message":"Too Many Requests"}', times=3)
    server.fail("pull", status=503, raw=b'{"message":"Service Unavailable"}', times=2)
    fill(server, "a")
    with start(server, lambda message: None, ids=ids):
        server.wait_until(lambda broker: settled(broker, 1))
    assert ids.pauses >= 5


def test_the_server_may_be_away_for_a_while(server: FakeServer, start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server.fail("pull", cut=True, times=2)
    server.fail("pull", status=500)
    fill(server, "a")
    with start(server, lambda message: None):
        server.wait_until(lambda broker: settled(broker, 1))
    assert [text.partition(",")[0] for text in caplog.messages] == ["pull failed", "pulls are answered again"]


def test_settlements_that_fail_are_logged_once_and_once_when_they_are_answered(
    server: FakeServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("settle", status=503, times=4)
    fill(server, "a")
    with start(server, lambda message: None):
        server.wait_until(lambda broker: settled(broker, 1))
    assert [text.partition(",")[0] for text in caplog.messages] == [
        "settlement failed",
        "settlements are answered again",
    ]


def test_a_refusal_that_stays_ends_the_run() -> None:
    with FakeServer(token=TOKEN).running() as server:
        subject = consumer(server)
        subject.handler(lambda message: None)
        with pytest.raises(Unauthorized):
            subject.run()
        with consumer(server) as messages, pytest.raises(Unauthorized):
            next(iter(messages))


def test_a_refused_settlement_ends_the_run(server: FakeServer, start: Start) -> None:
    fill(server, "a")
    server.fail("settle", status=400)
    running = start(server, lambda message: None, wait_seconds=5, max_messages=100)
    with running:
        running.join()
    assert isinstance(running.error, BadRequest)
    assert running.lost_messages == 1


@pytest.mark.parametrize("delete", ["delete_subject", "delete_group"])
def test_a_consumer_goes_on_after_a_deletion(server: FakeServer, start: Start, delete: str) -> None:
    """The settler meets the deletion, because the pull under way waits."""
    fill(server, "before")
    options = {"max_messages": 100, "settle_linger_seconds": 0, "wait_seconds": 20}
    names = {"delete_subject": ["orders"], "delete_group": ["orders", "billing"]}[delete]

    def handle(message: Delivery) -> None:
        if names:  # a new group begins with the first message
            server.wait_until(lambda broker: broker.waiting_pulls)
            with server.broker.changed:
                getattr(server.broker, delete)(*names)
            names.clear()
        elif message.body == "after":
            running.stop()

    with start(server, handle, waits=True, **options) as running:
        server.wait_until(lambda _: [call for call in server.requests if call.call == "settle"])
        fill(server, "after")
        running.join()
    assert running.error is None
    assert running.lost_messages >= 1
