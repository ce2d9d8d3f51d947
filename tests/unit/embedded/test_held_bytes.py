"""What a server holds while it answers counts too: unpacked bodies, and answers to pulls that have waited."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hourwheel.embedded.application import Application
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from tests.unit.embedded.http.talking import Client, Talk, quick, said

SEND, GROUP = "/v1/subjects/orders/messages", "/v1/subjects/orders/groups/billing"
MOST = 1_000_000


class Served:
    """A server behind real connections that hold at most ``MOST`` bytes."""

    def __init__(self, data: Path) -> None:
        options = ServeOptions(data=data)
        self.runtime = Runtime(options)
        self.application = Application(self.runtime, options)

    def talk(self, talk: Talk) -> bytes:
        async def attached(client: Client) -> bytes:
            self.runtime.greenlets.attach(asyncio.get_running_loop())
            self.runtime.wakeups.is_full = lambda: client.registry.is_full
            return await talk(client)

        application = self.application
        return said(attached, bounds=quick(held_bytes=MOST), respond=application.respond, plan=application.plan)

    def lag(self) -> tuple[int, int]:
        lag = self.runtime.deployment.groups.lag("orders", "billing")
        return lag.waiting, lag.in_flight


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    opened = Served(tmp_path)
    with closing(opened.runtime):
        yield opened


def request(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def answered(client: Client) -> tuple[int, bytes, Any]:
    head = await client.reader.readuntil(b"\r\n\r\n")
    length = int(head.partition(b"content-length: ")[2].split()[0])
    return int(head.split()[1]), head, json.loads(await client.reader.readexactly(length))


def packed(size: int) -> bytes:
    body = gzip.compress(json.dumps({"messages": [{"body": "x" * size}]}).encode())
    return request(SEND, body, "content-encoding: gzip")


def test_an_unpacked_body_counts_until_its_request_is_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    store = served.runtime.deployment.store_batch

    async def case(client: Client) -> bytes:
        def watched(*arguments: Any, **options: Any) -> Any:
            held.append(client.registry.held_bytes)
            return store(*arguments, **options)

        monkeypatch.setattr(served.runtime.deployment, "store_batch", watched)
        await client.send(packed(900_000))
        assert (await answered(client))[0] == 200
        assert client.registry.held_bytes == 0
        return b""

    served.talk(case)
    assert 900_000 < held[0] < 910_000


def test_a_body_that_unpacks_to_more_than_is_free_is_refused(served: Served) -> None:
    async def case(client: Client) -> bytes:
        client.registry.held_bytes += 200_000  # of other connections
        await client.send(packed(900_000))
        status, head, problem = await answered(client)
        assert (status, problem["type"]) == (503, "urn:hourwheel:server-busy")
        assert b"retry-after: 1\r\n" in head
        assert client.registry.held_bytes == 200_000
        await client.send(packed(700_000))
        assert (await answered(client))[0] == 200
        return b""

    served.talk(case)
    (pulled,) = served.runtime.deployment.pull("orders", "billing", PullRequest(consumer="c")).pulls
    assert [len(message.body or "") for message in pulled.messages] == [700_000]


@pytest.mark.parametrize("settles", [False, True])
def test_a_pull_that_has_waited_takes_no_message_while_the_memory_is_full(served: Served, settles: bool) -> None:
    deployment = served.runtime.deployment
    deployment.produce("orders", [NewMessage(body="first")])
    (pulled,) = deployment.pull("orders", "billing", PullRequest(consumer="c")).pulls
    asked: dict[str, Any] = {"consumer": "c", "wait_seconds": 20}
    if settles:
        asked["settle"] = [{"receipt": pulled.receipt}]

    async def case(client: Client) -> bytes:
        await client.send(request(f"{GROUP}/pull", json.dumps(asked).encode()))
        while not served.runtime.wakeups.waiting:
            await asyncio.sleep(0)
        client.registry.held_bytes += MOST  # of other connections
        await asyncio.to_thread(deployment.produce, "orders", [NewMessage(body="second")])
        status, head, answer = await answered(client)
        if settles:
            assert (status, answer["pulls"], answer["settled"][0]["status"]) == (200, [], "settled")
        else:
            assert (status, answer["type"]) == (503, "urn:hourwheel:server-busy")
            assert b"retry-after: 1\r\n" in head
        client.registry.held_bytes -= MOST
        assert client.registry.held_bytes == 0
        return b""

    served.talk(case)
    assert served.lag() == (1, 0 if settles else 1)
    (second,) = deployment.pull("orders", "billing", PullRequest(consumer="c")).pulls
    assert [message.body for message in second.messages] == ["second"]
