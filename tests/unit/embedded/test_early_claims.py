"""A pull that waits claims a message in the transaction that stores it, and neither is answered before the sync."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters.sqlite.synced_mark import last_transaction
from hourwheel.adapters.sqlite.writer import SqliteWriter
from hourwheel.buckets.buckets import buckets
from hourwheel.delay.wheel import Pause, WheelEnd
from hourwheel.embedded.directories.directory import database
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.model.messages import NewMessage, SendResult
from hourwheel.model.pulls import PullRequest, PullResult, Settlement
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import HandClock


class Server:
    """A runtime whose calls run in greenlets, as those of the server do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = Runtime(ServeOptions(data=folder))

    @property
    def transactions(self) -> int:
        return last_transaction(database(self.folder)).number

    def run(self, steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def attached() -> None:
            self.runtime.greenlets.attach(asyncio.get_running_loop())
            await asyncio.wait_for(steps(), 60)
            self.runtime.wakeups.close()

        asyncio.run(attached())

    async def waits(self, pulls: int) -> None:
        while self.runtime.wakeups.waiting != pulls:
            await asyncio.sleep(0)

    def pull(self, group: str = "billing", seconds: float = 20) -> "asyncio.Task[PullResult]":
        request = PullRequest(consumer="c", wait_seconds=seconds)
        work = self.runtime.greenlets.run(lambda: self.runtime.deployment.pull("orders", group, request))
        return asyncio.ensure_future(work)

    def send(self, body: str = "paid", key: str | None = "key") -> "asyncio.Task[list[SendResult]]":
        idempotency = None if key is None else IdempotencyKey(f"{key}-{body}", b"digest")

        def work() -> list[SendResult]:
            return self.runtime.deployment.produce("orders", [NewMessage(body=body)], idempotency)

        return asyncio.ensure_future(self.runtime.greenlets.run(work))


def bodies(result: PullResult) -> list[str | None]:
    return [message.body for pulled in result.pulls for message in pulled.messages]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    opened = Server(tmp_path / "data")
    with closing(opened.runtime):
        yield opened


@pytest.mark.parametrize("key", [None, "key"])
def test_a_waiting_pull_shares_the_transaction_of_the_send(server: Server, key: str | None) -> None:
    async def steps() -> None:
        await server.pull(seconds=0)
        pull = server.pull()
        await server.waits(1)
        before = server.transactions
        (sent,) = await server.send(key=key)
        assert bodies(await pull) == ["paid"]
        assert sent.offset == 0
        assert server.transactions == before + 1

    server.run(steps)


def test_neither_the_send_nor_the_pull_is_answered_before_the_sync(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()
    commit = SqliteWriter.commit

    def held(writer: SqliteWriter) -> None:
        entered.set()
        assert go_on.wait(60)
        commit(writer)

    async def steps() -> None:
        await server.pull(seconds=0)
        pull = server.pull()
        await server.waits(1)
        monkeypatch.setattr(SqliteWriter, "commit", held)
        sent = server.send()
        await asyncio.get_running_loop().run_in_executor(None, entered.wait)
        assert not sent.done()
        assert not pull.done()
        go_on.set()
        await sent
        assert bodies(await pull) == ["paid"]

    server.run(steps)


def test_a_commit_that_fails_gives_the_message_to_the_pull_once(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, fails = SqliteWriter.commit, [True]

    def failing(writer: SqliteWriter) -> None:
        if fails and fails.pop():
            raise sqlite3.OperationalError("disk I/O error")
        commit(writer)

    async def steps() -> None:
        await server.pull(seconds=0)
        pull = server.pull()
        await server.waits(1)
        monkeypatch.setattr(SqliteWriter, "commit", failing)
        (sent,) = await server.send()
        assert sent.offset == 0
        assert bodies(await pull) == ["paid"]
        assert bodies(await server.pull(seconds=0)) == []

    server.run(steps)


def test_of_two_pulls_of_a_group_one_gets_the_message_and_the_other_goes_on_waiting(server: Server) -> None:
    async def steps() -> None:
        await server.pull(seconds=0)
        pulls = [server.pull(), server.pull()]
        await server.waits(2)
        await server.send("first")
        done, left = await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
        assert [bodies(pull.result()) for pull in done] == [["first"]]
        await server.waits(1)
        await server.send("second")
        assert [bodies(await pull) for pull in left] == [["second"]]

    server.run(steps)


def test_the_pull_that_joined_is_answered_before_the_send(server: Server) -> None:
    answered: list[str] = []

    def noted(name: str, work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            work()
            answered.append(name)

        return run

    async def steps() -> None:
        await server.pull(seconds=0)
        deployment, runner = server.runtime.deployment, server.runtime.greenlets
        request = PullRequest(consumer="c", wait_seconds=20)
        runner.spawn(noted("pull", lambda: deployment.pull("orders", "billing", request)))
        await server.waits(1)
        runner.spawn(noted("send", lambda: deployment.produce("orders", [NewMessage(body="paid")])))
        while len(answered) < 2:
            await asyncio.sleep(0)
        assert answered == ["pull", "send"]

    server.run(steps)


def test_a_pull_that_joined_leaves_retries_to_the_next_pull(server: Server) -> None:
    async def steps() -> None:
        await server.pull(seconds=0)
        await server.send("again")
        (first,) = (await server.pull(seconds=0)).pulls
        waiting = server.pull()
        await server.waits(1)
        deployment, run = server.runtime.deployment, server.runtime.greenlets.run
        release = Settlement(receipt=first.receipt, release=[0])
        settled = asyncio.ensure_future(run(lambda: deployment.settle("orders", "billing", [release])))
        await asyncio.gather(settled, server.send("new"))
        assert bodies(await waiting) == ["new"]
        assert bodies(await server.pull()) == ["again"]

    server.run(steps)


def test_each_group_gets_the_message(server: Server) -> None:
    async def steps() -> None:
        names = ("billing", "audit", "mail")
        for name in names:
            await server.pull(name, seconds=0)
        pulls = [server.pull(name) for name in names]
        await server.waits(3)
        before = server.transactions
        await server.send()
        assert [bodies(await pull) for pull in pulls] == [["paid"]] * 3
        assert server.transactions == before + 1

    server.run(steps)


def test_a_pull_of_an_ordered_group_gets_the_message_after_the_send(server: Server) -> None:
    async def steps() -> None:
        deployment, run = server.runtime.deployment, server.runtime.greenlets.run
        await run(lambda: deployment.subjects.put("orders"))
        await run(lambda: deployment.groups.put("orders", "billing", ordered=True))
        pull = server.pull()
        await server.waits(1)
        await server.send()
        assert bodies(await pull) == ["paid"]

    server.run(steps)


def test_a_waiting_pull_shares_the_transaction_in_which_a_wheel_hands_over(server: Server) -> None:
    recorded: list[int] = []
    pulled = threading.Event()

    def pause(seconds: float) -> bool:
        recorded.append(server.transactions)  # the step is committed and announced
        pulled.wait(60)
        return False

    async def steps() -> None:
        await server.pull(seconds=0)
        delayed = NewMessage(body="due", delay="5m")
        await server.runtime.greenlets.run(lambda: server.runtime.deployment.produce("orders", [delayed]))
        pull = server.pull()
        await server.waits(1)
        wheel = asyncio.ensure_future(asyncio.to_thread(handed_over, server, pause))
        assert bodies(await pull) == ["due"]
        after = server.transactions
        pulled.set()
        assert await wheel is WheelEnd.STOPPED
        assert recorded == [after]

    server.run(steps)


def test_a_wheel_hands_over_without_the_loop_once_it_has_ended(server: Server) -> None:
    async def steps() -> None:
        await server.pull(seconds=0)
        delayed = NewMessage(body="due", delay="5m")
        await server.runtime.greenlets.run(lambda: server.runtime.deployment.produce("orders", [delayed]))

    server.run(steps)
    handed_over(server, lambda seconds: seconds == 0)
    (pull,) = server.runtime.deployment.pull("orders", "billing", PullRequest(consumer="c")).pulls
    assert [message.body for message in pull.messages] == ["due"]


def handed_over(server: Server, pause: Pause) -> WheelEnd:
    """Turns the wheel of the only bucket as its thread does, at the end of the bucket."""
    deployment = server.runtime.wheel_deployment()
    ((bucket, _),) = buckets(deployment.context)
    clock = HandClock(bucket.end_ms - 1)
    deployment.context = replace(deployment.context, clock=clock)
    return deployment.turn_wheel(bucket.name, "w", pause)
