"""What both consumers do: each scenario runs in threads, and in tasks of two event loops."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import Any

import pytest

from hourwheel.client import Delivery, Reject, Retry
from hourwheel.client.consuming import pull_session
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import LONG_SECONDS, Start
from tests.unit.client.test_consumer import fill, group, settled


def test_what_a_handler_returns_from_is_acknowledged(server: FakeServer, start: Start) -> None:
    fill(server, "a", "b", "c")
    seen: list[str | bytes] = []
    with start(server, lambda message: seen.append(message.body)):
        server.wait_until(lambda broker: settled(broker, 3))
    assert seen == ["a", "b", "c"]
    assert not group(server).retries


def test_an_exception_retries_and_reject_gives_up(
    server: FakeServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, "fails once", "hopeless", "fine")
    attempts: list[tuple[str | bytes, int]] = []

    def handle(message: Delivery) -> None:
        attempts.append((message.body, message.attempt))
        if message.body == "fails once" and message.attempt == 1:
            raise RuntimeError("not today")
        if message.body == "hopeless":
            raise Reject("never")

    with caplog.at_level(logging.INFO, logger="hourwheel"), start(server, handle):
        server.wait_until(lambda broker: settled(broker, 2))
    assert ("fails once", 2) in attempts
    assert [letter["body"] for letter in group(server).dead] == ["hopeless"]
    assert "not today" in caplog.text
    failed = next(line for line in caplog.messages if line.startswith("handler failed"))
    assert "of subject orders, group billing, attempt 1:" in failed
    rejected = next(line for line in caplog.messages if line.endswith("rejected: never"))
    assert "of subject orders, group billing, attempt 1 rejected" in rejected


def test_a_handler_may_decide_by_itself(server: FakeServer, start: Start) -> None:
    fill(server, "a", "b")

    def handle(message: Delivery) -> None:
        if message.attempt == 1:
            (message.dead if message.body == "a" else message.retry)()

    with start(server, handle):
        server.wait_until(lambda broker: settled(broker, 1))
    assert [letter["body"] for letter in group(server).dead] == ["a"]


def test_a_handler_may_say_when_to_try_again(
    server: FakeServer, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, "raises", "decides", "mistakes", "fine")

    def handle(message: Delivery) -> None:
        if message.body == "raises":
            raise Retry("the bank is closed", delay="10m")
        if message.body == "decides":
            message.retry(delay=timedelta(minutes=2))
        if message.body == "mistakes" and message.attempt == 1:
            raise Retry(delay="1000d")

    with caplog.at_level(logging.INFO, logger="hourwheel"), start(server, handle):
        server.wait_until(lambda broker: settled(broker, 2))
    own = [(delay, message["body"]) for delay, message in group(server).backing_off]
    assert sorted(own, key=str) == [("10m", "raises"), (120.0, "decides")]
    assert "the bank is closed" in caplog.text
    settlements = [entry for request in server.requests for entry in request.body.get("settle", [])]
    retries = [retry for entry in settlements for retry in entry.get("retry", [])]
    assert {"index": 0, "delay": "10m", "detail": "the bank is closed"} in retries
    assert "delay is too long" in caplog.text  # an exception like any other: its message is retried as the group says


def test_handlers_share_the_messages_of_a_pull(server: FakeServer, start: Start) -> None:
    fill(server, "a", "b", "c", "d")
    together = threading.Barrier(4, timeout=LONG_SECONDS)
    with start(server, lambda message: together.wait(), concurrency=4, waits=True):
        server.wait_until(lambda broker: settled(broker, 4))
    assert len([pull for pull in server.calls("pull") if "settle" not in pull.body]) >= 1


def test_settlements_travel_with_the_next_pull(server: FakeServer, start: Start) -> None:
    fill(server, *map(str, range(40)))
    last = threading.Event()
    with start(server, lambda message: message.body == "39" and last.set(), max_messages=10, settle_linger_seconds=60):
        assert last.wait(LONG_SECONDS)
    assert settled(server.broker, 40)
    assert len(server.calls("settle")) <= 1  # the last one, at the stop


def test_results_do_not_wait_for_a_slow_neighbour(server: FakeServer, start: Start) -> None:
    fill(server, "fast", "slow")
    go_on = threading.Event()

    def handle(message: Delivery) -> None:
        if message.body == "slow":
            assert go_on.wait(LONG_SECONDS)

    with start(server, handle, waits=True):
        server.wait_until(lambda broker: broker.group("orders", "billing").acked == ["fast"])
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 2))
    assert any(entry.get("ack") == [0] for call in server.calls("settle") for entry in call.body["settle"])


def test_a_result_is_settled_while_a_pull_waits(
    server: FakeServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_session, "BUSY_WAIT_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(pull_session, "BUSY_END_SECONDS", 0.0)
    fill(server, "a")
    go_on = threading.Event()
    with start(server, lambda message: go_on.wait(LONG_SECONDS), wait_seconds=20, waits=True):
        server.wait_until(
            lambda broker: broker.waiting_pulls == 1 and broker.group("orders", "billing").positions == [1]
        )
        pulls = len(server.calls("pull"))
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 1))
        assert len(server.calls("pull")) == pulls


def test_the_next_batch_is_there_before_the_last_message_is_done(server: FakeServer, start: Start) -> None:
    fill(server, *map(str, range(8)))
    go_on = threading.Event()
    with start(server, lambda message: go_on.wait(LONG_SECONDS), max_messages=2, waits=True):
        server.wait_until(lambda broker: broker.group("orders", "billing").positions == [4])
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 8))


def test_a_slow_handler_keeps_its_lease(server: FakeServer, start: Start) -> None:
    fill(server, "slow")
    go_on = threading.Event()
    with start(server, lambda message: go_on.wait(LONG_SECONDS), lease_seconds=1, waits=True):
        server.wait_until(lambda _: len([call for call in server.requests if call.call == "settle"]) >= 3)
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 1))
    assert server.calls("settle")[0].body["settle"][0]["extend_seconds"] == 1
    assert not group(server).retries


def test_a_lost_lease_is_told_to_the_handler_and_its_result_dropped(server: FakeServer, start: Start) -> None:
    fill(server, "slow", "not begun")
    begun, lost = threading.Event(), threading.Event()
    seen: list[tuple[str | bytes, int]] = []

    def handle(message: Delivery) -> None:
        seen.append((message.body, message.attempt))
        if len(seen) == 1:
            begun.set()
            while not message.lost:
                assert lost.wait(LONG_SECONDS)

    running = start(server, handle, lease_seconds=1, max_messages=100, waits=True)
    with running:
        assert begun.wait(LONG_SECONDS)
        server.broker.end_leases("orders", "billing")
        server.wait_until(lambda _: running.lost_messages == 2)
        lost.set()
        server.wait_until(lambda broker: settled(broker, 2))
    assert sorted(seen) == [("not begun", 1), ("slow", 1), ("slow", 1)]


def test_stop_lets_running_handlers_finish_and_settles_them(server: FakeServer, start: Start) -> None:
    fill(server, *map(str, range(10)))
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: Delivery) -> None:
        begun.set()
        assert go_on.wait(LONG_SECONDS)

    running = start(server, handle, max_messages=100, drain_seconds=0, settle_linger_seconds=60, waits=True)
    with running:
        assert begun.wait(LONG_SECONDS)
        running.stop()
        go_on.set()
        running.join()
    assert group(server).acked == ["0"]
    assert sorted(message["body"] for message in group(server).retries) == [str(number) for number in range(1, 10)]
    assert not any(lease.left for lease in group(server).leases.values())


def test_stop_drains_what_was_pulled(server: FakeServer, start: Start) -> None:
    fill(server, *map(str, range(10)))
    options = {"max_messages": 100, "drain_seconds": LONG_SECONDS, "settle_linger_seconds": 60}
    running = start(server, lambda message: running.consumer.stop(), **options)
    with running:
        running.join()
    assert len(group(server).acked) == 10


def test_stop_settles_though_the_server_stumbles(server: FakeServer, start: Start) -> None:
    fill(server, "a")
    server.fail("settle", lose=True)
    server.fail("settle", cut=True)
    running = start(server, lambda message: running.consumer.stop(), settle_linger_seconds=60, drain_seconds=0)
    with running:
        running.join()
    assert group(server).acked == ["a"]
    assert len(server.calls("settle")) == 3


def test_a_stop_without_a_message_cuts_the_pull_that_waits_at_once(server: FakeServer, start: Start) -> None:
    with start(server, lambda message: None, wait_seconds=20, drain_seconds=LONG_SECONDS, concurrency=3):
        server.wait_until(lambda broker: broker.waiting_pulls == 1)
    assert server.broker.waiting_pulls == 1
    fill(server, "a")  # lets the pull at the server end


def test_nothing_is_lost_or_doubled_among_many(server: FakeServer, start: Start) -> None:
    bodies = [str(number) for number in range(1_000)]
    fill(server, *bodies)
    options: dict[str, Any] = {"concurrency": 3, "max_messages": 20}
    first = start(server, lambda message: None, **options)
    second = start(server, lambda message: None, **options)
    with first, second:
        server.wait_until(lambda broker: settled(broker, 1_000))
    assert sorted(group(server).acked, key=int) == bodies
