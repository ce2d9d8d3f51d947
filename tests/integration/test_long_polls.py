"""A pull that waits is answered as soon as a message comes, and holds up nobody."""

import json
import time

from tests.integration.conftest import Start
from tests.integration.process import Connection, Server, bodies, pull, send

MANY = 200


def ask(
    connection: Connection, group: str, *, subject: str = "orders", seconds: float = 20, consumer: str = "c1"
) -> None:
    """Sends a pull that waits; the group is there once the server has begun with it."""
    connection.send(
        "POST", f"/v1/subjects/{subject}/groups/{group}/pull", {"consumer": consumer, "wait_seconds": seconds}
    )


def until_groups(server: Server, count: int, subject: str = "orders") -> None:
    with server.connect() as connection:
        while groups_of(connection, subject) != count:
            pass


def groups_of(connection: Connection, subject: str) -> int:
    """Returns the number of groups, read page by page."""
    count, after = 0, ""
    while True:
        found = connection.call("GET", f"/v1/subjects/{subject}/groups{after}")
        if found.status != 200:
            return 0
        count += len(found.json["groups"])
        if found.json["next"] is None:
            return count
        after = f"?after={found.json['next']}"


def test_a_waiting_pull_is_woken_at_once(server: Server) -> None:
    delays = []
    with server.connect() as consumer, server.connect() as producer:
        producer.ok("PUT", "/v1/subjects/orders/groups/billing")
        for n in range(20):
            ask(consumer, "billing")
            began = time.monotonic()
            send(producer, f"{n}")
            (one,) = consumer.receive().json["pulls"]
            delays.append(time.monotonic() - began)
            assert bodies([one]) == [f"{n}"]
    # The best of them, because the machine has other work: looking again now and then would take longer.
    assert min(delays) < 0.1, delays


def test_many_waiting_pulls_do_not_hold_up_other_requests(server: Server) -> None:
    pollers = [server.connect() for _ in range(MANY)]
    for n, poller in enumerate(pollers):
        ask(poller, f"g{n}")
    until_groups(server, MANY)
    send(server, "elsewhere", subject="refunds")
    assert bodies(pull(server, subject="refunds")) == ["elsewhere"]
    send(server, "for all")
    for poller in pollers:
        assert bodies(poller.receive().json["pulls"]) == ["for all"]
        poller.close()


def test_of_many_consumers_of_a_group_each_message_wakes_one(server: Server) -> None:
    pollers = [server.connect() for _ in range(8)]
    for poller in pollers:
        ask(poller, "billing", seconds=10)
    until_groups(server, 1)
    for n in range(8):
        send(server, f"{n}")
    found = [body for poller in pollers for body in bodies(poller.receive().json["pulls"])]
    assert sorted(found) == [f"{n}" for n in range(8)]
    for poller in pollers:
        poller.close()


def test_a_message_wakes_every_consumer_of_a_broadcast_group(server: Server) -> None:
    server.ok("PUT", "/v1/subjects/orders/groups/screens", {"broadcast": True})
    consumers = {name: server.connect() for name in ("hall", "desk", "shop")}
    for name, connection in consumers.items():
        pull(connection, group="screens", consumer=name)
        ask(connection, "screens", consumer=name)
    began = time.monotonic()
    send(server, "for all")
    for connection in consumers.values():
        assert bodies(connection.receive().json["pulls"]) == ["for all"]
        connection.close()
    assert time.monotonic() - began < 15  # each pull waits for 20 s where nothing wakes it


def test_those_beyond_the_limit_are_answered_at_once(start: Start) -> None:
    server = start(max_waiting=1)
    with server.connect() as waiting, server.connect() as beyond:
        ask(waiting, "a")
        until_groups(server, 1)
        ask(beyond, "b")
        # One of the two was first.
        send(server, "x", subject="refunds")
        ask_again = beyond.receive()
        assert ask_again.json == {"pulls": []}
        send(server, "now")
        assert bodies(waiting.receive().json["pulls"]) == ["now"]


def test_a_client_that_goes_away_takes_no_messages_with_it(server: Server) -> None:
    gone = server.raw()
    body = json.dumps({"consumer": "gone", "wait_seconds": 20}).encode()
    path = "/v1/subjects/orders/groups/billing/pull"
    gone.sendall(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    until_groups(server, 1)
    gone.close()
    with server.connect() as connection:
        connection.ok("GET", "/v1/health")
        send(connection, "mine")
        assert bodies(pull(connection)) == ["mine"]


def test_two_servers_on_one_directory_share_its_messages(start: Start) -> None:
    one, other = start(), start()
    with other.connect() as consumer:
        ask(consumer, "billing")
        until_groups(one, 1)
        send(one, "from next door")
        assert bodies(consumer.receive().json["pulls"]) == ["from next door"]
    assert pull(one) == []
    assert one.stop() == (0, "")
    assert other.stop() == (0, "")
