"""Clients of this version, whose callers share requests, with a server that is killed and with clients before them."""

import threading

from hourwheel.client import Consumer, Delivery, Message, Producer
from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, pull, send

CALLERS = 6
EACH = 40


def test_what_callers_share_is_stored_once_and_in_their_order_though_the_server_is_killed(start: Start) -> None:
    server = start()
    half, failed = threading.Barrier(CALLERS + 1, timeout=SECONDS), list[BaseException]()

    def call(producer: Producer, name: str) -> None:
        try:
            for number in range(EACH):
                if number == EACH // 2:
                    half.wait()
                results = producer.send_batch([f"{name}-{number:02}-first", Message(f"{name}-{number:02}-second")])
                assert len(results) == 2
        except BaseException as error:
            failed.append(error)

    with Producer(f"http://127.0.0.1:{server.port}", subject="orders") as producer:
        threads = [threading.Thread(target=call, args=(producer, name)) for name in "abcdef"]
        for thread in threads:
            thread.start()
        half.wait()
        server.kill()  # with requests under way
        server = start(port=server.port)
        for thread in threads:
            thread.join(SECONDS)
    assert failed == []
    stored = [message["body"] for one in pull(server, max_messages=1_000) for message in one["messages"]]
    for name in "abcdef":
        own = [body for body in stored if body.startswith(name)]
        assert own == [f"{name}-{number:02}-{half}" for number in range(EACH) for half in ("first", "second")]
    assert len(stored) == CALLERS * EACH * 2


def test_a_client_of_the_version_before_and_a_new_one_share_a_group(server: Server) -> None:
    """The one before speaks JSON only, and settles by the same receipts."""
    send(server, *(f"old {number}" for number in range(20)))
    with Producer(f"http://127.0.0.1:{server.port}", subject="orders") as producer:
        producer.send_batch([b"\x00\xff", *(f"new {number}" for number in range(19))])
    (first, *_) = pull(server, max_messages=10)
    retry = {"receipt": first["receipt"], "retry": [{"index": 3, "delay": 0}]}
    assert server.ok("POST", "/v1/subjects/orders/groups/billing/ack", {"settle": [retry]})["results"]
    seen: list[str | bytes] = []
    consumer = Consumer(f"http://127.0.0.1:{server.port}", "orders", "billing", max_messages=7, wait_seconds=1)

    @consumer.batch_handler
    def handle(messages: list[Delivery]) -> None:
        seen.extend(message.body for message in messages)
        if len(seen) >= 31:
            consumer.stop()

    consumer.run()
    before = [message["body"] for index, message in enumerate(first["messages"]) if index != 3]
    everything = [*(f"old {number}" for number in range(20)), b"\x00\xff", *(f"new {number}" for number in range(19))]
    assert sorted(map(repr, [*before, *seen])) == sorted(map(repr, everything))
    lag = server.ok("GET", "/v1/subjects/orders/groups/billing/lag")
    assert (lag["waiting"], lag["in_flight"], lag["retrying"]) == (0, 0, 0)
