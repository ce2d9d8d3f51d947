"""``AsyncApi`` has the calls, the answers and the errors of ``Api``."""

import asyncio
import inspect
import threading
from typing import Any

import pytest

from hourwheel.client import (
    Api,
    AsyncApi,
    Closed,
    Message,
    NotFound,
    Problem,
    ServerUnavailable,
    Settled,
    Settlement,
    Unauthorized,
)
from tests.unit.client.aio.conftest import LONG_SECONDS, Run, until
from tests.unit.client.fake import TOKEN, FakeServer
from tests.unit.client.ids import StillIds
from tests.unit.client.test_schemes import answering


def calls(kind: type) -> dict[str, Any]:
    return {name: each for name, each in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_each_call_has_the_arguments_of_the_one_with_its_name_and_is_a_coroutine() -> None:
    assert calls(AsyncApi).keys() == calls(Api).keys()
    for name, call in calls(AsyncApi).items():
        assert inspect.iscoroutinefunction(call)
        if name != "close":
            assert inspect.signature(call) == inspect.signature(calls(Api)[name])


def test_messages_are_sent_pulled_and_settled(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> list[Settled]:
        async with AsyncApi(server.url, ids=StillIds()) as api:
            await api.put_subject("orders")
            (result,) = await api.produce("orders", [Message("paid", key="customer-42")])
            assert (result.queue, result.offset) == (0, 0)
            (pull,) = (await api.pull("orders", "billing", "host-1")).pulls
            assert [message.body for message in pull.messages] == ["paid"]
            return await api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])

    assert [settled.status for settled in run(main())] == ["settled"]


def test_errors_are_those_of_the_other_client(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> Problem:
        async with AsyncApi(server.url) as api:
            with pytest.raises(ValueError, match="there is no scheduled_id"):
                await api.get_scheduled("")
            with pytest.raises(NotFound) as raised:
                await api.get_subject("nothing")
            return raised.value.problem

    problem = run(main())
    with Api(server.url) as api, pytest.raises(NotFound) as raised:
        api.get_subject("nothing")
    assert raised.value.problem == problem


def test_a_token_is_sent_and_a_wrong_one_refused(run: Run[Any]) -> None:
    async def main(url: str) -> None:
        async with AsyncApi(url, token=TOKEN) as api:
            assert (await api.list_subjects()).subjects == []
        async with AsyncApi(url, token="wrong") as api:
            with pytest.raises(Unauthorized):
                await api.list_subjects()
        async with AsyncApi(url, token="two\nlines") as api:
            with pytest.raises(ValueError, match="line end"):
                await api.list_subjects()

    with FakeServer(token=TOKEN).running() as server:
        run(main(server.url))


def test_tasks_have_connections_of_their_own_and_later_calls_use_them_again(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(server.url) as api:
            for _ in range(3):
                await asyncio.gather(*(api.health() for _ in range(5)))

    run(main())
    assert server.connections == 5


def test_a_connection_that_the_server_closed_is_replaced(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(server.url, retry_seconds=0) as api:
            await api.health()
            server.close_connections()
            server.wait_until(lambda _: not server._sockets)  # without a turn of the loop
            await api.health()

    run(main())
    assert server.connections == 2


def test_a_call_without_an_answer_is_repeated_where_that_is_safe(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(server.url, ids=StillIds()) as api:
            server.fail("list_subjects", cut=True, times=2)
            await api.list_subjects()
            server.fail("produce", lose=True)
            with pytest.raises(ServerUnavailable, match="did not answer"):
                await api.produce("orders", [Message("paid")])

    run(main())
    assert [len(server.calls(call)) for call in ("list_subjects", "produce")] == [3, 1]


def test_a_proxy_that_refuses_msgpack_gets_json_from_then_on(server: FakeServer, run: Run[Any]) -> None:
    server.takes_msgpack = False

    async def main() -> None:
        async with AsyncApi(server.url) as api:
            await asyncio.gather(*(api.produce("orders", [Message("paid")]) for _ in range(3)))
            await api.produce("orders", [Message("paid")])

    run(main())
    assert (len(server.bodies("orders")), server.refused) == (4, 3)


def test_no_server_and_a_server_of_another_scheme_are_told(run: Run[Any]) -> None:
    async def call(port: int) -> str:
        async with AsyncApi(f"http://127.0.0.1:{port}", retry_seconds=0) as api:
            with pytest.raises(ServerUnavailable) as raised:
                await api.list_subjects()
            return f"{raised.value.sent} {raised.value}"

    assert run(call(1)).startswith("False the server at 127.0.0.1:1 cannot be reached")
    with answering(b"\x15\x03\x01\x00\x02\x02\x28") as port:
        assert "; it serves HTTPS: the URL begins with https://" in run(call(port))


def test_a_call_that_takes_too_long_ends(server: FakeServer, run: Run[Any]) -> None:
    answers = threading.Event()
    server.fail("list_subjects", before=lambda: answers.wait(LONG_SECONDS))

    async def main() -> None:
        async with AsyncApi(server.url, timeout_seconds=0.05, retry_seconds=0) as api:
            with pytest.raises(ServerUnavailable, match="did not answer: timed out"):
                await api.list_subjects()

    run(main())
    answers.set()


def test_close_ends_the_calls_under_way(server: FakeServer, run: Run[Any]) -> None:
    answers = threading.Event()
    server.fail("list_subjects", before=lambda: answers.wait(LONG_SECONDS))

    async def main() -> None:
        api = AsyncApi(server.url)
        call = asyncio.ensure_future(api.list_subjects())
        await until(lambda: server.calls("list_subjects"))
        await api.close()
        with pytest.raises(Closed):
            await call
        with pytest.raises(Closed):
            await api.list_subjects()

    run(main())
    answers.set()


def test_a_cancelled_call_ends_its_connection_and_no_other(server: FakeServer, run: Run[Any]) -> None:
    answers = threading.Event()
    server.fail("list_subjects", before=lambda: answers.wait(LONG_SECONDS))

    async def main() -> None:
        async with AsyncApi(server.url) as api:
            call = asyncio.ensure_future(api.list_subjects())
            await until(lambda: server.calls("list_subjects"))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            answers.set()
            assert (await api.health()).status == "ok"

    run(main())
    assert server.connections == 2
