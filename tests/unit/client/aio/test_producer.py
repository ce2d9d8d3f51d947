"""Tasks that send at one time share requests: the error of one does not affect the others."""

import asyncio
import inspect
import logging
import threading
from typing import Any

import pytest

from hourwheel.client import (
    AsyncProducer,
    BadRequest,
    Closed,
    DeliveryTimeout,
    Message,
    NotSent,
    Problem,
    Producer,
    SendResult,
    ServerFault,
    Unauthorized,
)
from hourwheel.client.aio.shared_sends import AwaitedBatch
from hourwheel.client.transport.endpoint import REPEAT_HEADER
from tests.unit.client.aio.conftest import LONG_SECONDS, Run, until
from tests.unit.client.fake import TOKEN, FakeServer
from tests.unit.client.ids import StillIds


def producer(server: FakeServer, **options: Any) -> AsyncProducer:
    return AsyncProducer(server.url, **{"subject": "orders", "ids": StillIds(), **options})


class Held:
    """Requests of the fake server that wait until they are let go."""

    def __init__(self, server: FakeServer, call: str = "produce", **how: Any) -> None:
        self._server, self._call = server, call
        self.go = threading.Event()
        server.fail(call, before=lambda: self.go.wait(LONG_SECONDS), **how)

    async def began(self) -> None:
        await until(lambda: self._server.calls(self._call))


def test_a_result_says_where_the_message_was_stored(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> list[SendResult]:
        async with producer(server) as sends:
            return [await sends.send("one", key="a"), *await sends.send_batch(["two", Message(b"\xff")])]

    assert [result.offset for result in run(main())] == [0, 1, 2]


def test_tasks_share_requests_in_the_order_of_their_calls(server: FakeServer, run: Run[Any]) -> None:
    names = [f"message {number:03}" for number in range(200)]

    async def main() -> None:
        async with producer(server, batch_messages=50) as sends, asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(sends.send(name))

    run(main())
    assert server.bodies("orders") == names
    assert [len(request.body["messages"]) for request in server.calls("produce")] == [50] * 4


def test_a_second_subject_does_not_wait_for_the_first(server: FakeServer, run: Run[Any]) -> None:
    held = Held(server)

    async def main() -> None:
        async with producer(server) as sends:
            first = asyncio.ensure_future(sends.send("slow"))
            await held.began()
            assert (await sends.send("quick", subject="invoices")).offset == 0
            held.go.set()
            await first

    run(main())


def test_a_request_without_an_answer_is_repeated_with_the_same_key(server: FakeServer, run: Run[Any]) -> None:
    server.fail("produce", lose=True)

    async def main() -> SendResult:
        async with producer(server) as sends:
            return await sends.send("paid")

    assert run(main()).offset == 0
    first, second = server.calls("produce")
    assert first.body == second.body
    assert (first.headers.get(REPEAT_HEADER), second.headers.get(REPEAT_HEADER)) == (None, "1")
    assert server.bodies("orders") == ["paid"]


def test_one_bad_message_fails_alone(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> list[Any]:
        async with producer(server) as sends:
            bodies = [sends.send("good"), sends.send("bad", key="bad"), sends.send("fine")]
            return await asyncio.gather(*bodies, return_exceptions=True)

    good, bad, fine = run(main())
    assert isinstance(bad, BadRequest)
    assert (good.offset, fine.offset) == (0, 1)


def test_a_batch_is_refused_whole(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> list[Any]:
        async with producer(server) as sends:
            batches = [sends.send_batch(["a", Message("b", key="bad")]), sends.send("c")]
            return await asyncio.gather(*batches, return_exceptions=True)

    refused, stored = run(main())
    assert (type(refused), stored.offset) == (BadRequest, 0)
    assert server.bodies("orders") == ["c"]


def test_an_empty_batch_is_for_the_server_to_refuse(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with producer(server) as sends:
            await asyncio.gather(sends.send("a"), sends.send_batch([]), sends.send("b"))

    run(main())
    assert [len(request.body["messages"]) for request in server.calls("produce")] == [1, 0, 1]


def test_a_wrong_token_fails_every_call(run: Run[Any]) -> None:
    async def main(url: str) -> list[Any]:
        async with AsyncProducer(url, subject="orders", token="wrong") as sends:
            return await asyncio.gather(*(sends.send("paid") for _ in range(3)), return_exceptions=True)

    with FakeServer(token=TOKEN).running() as server:
        assert [type(error) for error in run(main(server.url))] == [Unauthorized] * 3


def test_what_was_not_sent_is_taken_back_by_a_cancel(server: FakeServer, run: Run[Any]) -> None:
    held = Held(server)

    async def main() -> BaseException:
        async with producer(server) as sends:
            first = asyncio.ensure_future(sends.send("first"))
            await held.began()
            second = asyncio.ensure_future(sends.send("second"))
            third = asyncio.ensure_future(sends.send("third"))
            await asyncio.sleep(0)
            second.cancel()
            held.go.set()
            assert [(await each).offset for each in (first, third)] == [0, 1]
            with pytest.raises(asyncio.CancelledError) as raised:
                await second
            return raised.value

    assert run(main()).__notes__ == ["the messages were not sent"]
    assert server.bodies("orders") == ["first", "third"]


def test_a_cancel_of_what_is_under_way_says_so_and_the_others_are_stored(
    server: FakeServer, run: Run[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hourwheel.client")
    held = Held(server)

    async def main() -> BaseException:
        async with producer(server) as sends:
            mine = asyncio.ensure_future(sends.send("mine", message_id="order-7"))
            others = asyncio.ensure_future(sends.send("others"))
            await held.began()
            mine.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await mine
            held.go.set()
            assert (await others).offset == 1
            return raised.value

    assert run(main()).__notes__ == ["the messages may be stored or not"]
    assert caplog.messages == ["1 message of a cancelled send stored in orders: the first has the id order-7"]


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (None, "the messages are stored"),
        (BadRequest(Problem(status=400)), "the messages were not stored"),
        (ServerFault(Problem(status=501)), "the messages may be stored or not"),
        (DeliveryTimeout("out of time"), "the messages may be stored or not"),
        (Closed("the time to close ran out"), "the messages may be stored or not"),
    ],
)
def test_a_cancel_that_comes_with_the_outcome_says_what_is_known(
    run: Run[Any], error: Exception | None, note: str
) -> None:
    async def main() -> str:
        batch = AwaitedBatch("orders", [Message("paid")], 4, give_up_at=LONG_SECONDS)
        batch.taken = True
        if error is None:
            batch.accept([SendResult("order-7", 0, 0)])
        else:
            batch.fail(error)
        return batch.cancelled_note()

    assert run(main()) == note


def test_the_producers_take_the_same_messages() -> None:
    for name in ("send", "send_batch"):
        of_threads = inspect.signature(getattr(Producer, name)).parameters
        of_tasks = inspect.signature(getattr(AsyncProducer, name)).parameters
        assert [each for each in of_threads.values() if each.name != "on_done"] == list(of_tasks.values())


def test_a_time_limit_of_the_caller_is_a_cancel(server: FakeServer, run: Run[Any]) -> None:
    held = Held(server)

    async def main() -> None:
        async with producer(server) as sends:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await sends.send("paid")
            held.go.set()

    run(main())


def test_a_full_producer_makes_senders_wait_in_turn(server: FakeServer, run: Run[Any]) -> None:
    held = Held(server)

    async def main() -> None:
        async with producer(server, max_pending_messages=2) as sends, asyncio.TaskGroup() as tasks:
            for number in range(6):
                tasks.create_task(sends.send(str(number)))
            await held.began()
            assert len(server.calls("produce")[0].body["messages"]) == 2
            held.go.set()

    run(main())
    assert server.bodies("orders") == [str(number) for number in range(6)]
    assert all(len(request.body["messages"]) <= 2 for request in server.calls("produce"))


def test_a_sender_that_is_cancelled_while_it_waits_for_room_gives_its_turn_away(
    server: FakeServer, run: Run[Any]
) -> None:
    held = Held(server)

    async def main() -> None:
        async with producer(server, max_pending_messages=1) as sends:
            first, second, third = (asyncio.ensure_future(sends.send(name)) for name in ("1", "2", "3"))
            await held.began()
            second.cancel()
            held.go.set()
            await asyncio.gather(first, third)

    run(main())
    assert server.bodies("orders") == ["1", "3"]


@pytest.mark.parametrize("waiting", [False, True])
def test_a_message_that_is_out_of_time_fails(server: FakeServer, run: Run[Any], waiting: bool) -> None:
    held = Held(server)

    async def main() -> None:
        async with producer(server, delivery_timeout_seconds=0.05, max_pending_messages=2 - waiting) as sends:
            both = [asyncio.ensure_future(sends.send(name)) for name in ("first", "second")]
            errors = await asyncio.gather(*both, return_exceptions=True)
            assert [type(error) for error in errors] == [DeliveryTimeout] * 2
            held.go.set()

    run(main())


def test_close_sends_what_is_there_and_refuses_more(server: FakeServer, run: Run[Any]) -> None:
    held = Held(server)

    async def main() -> None:
        sends = producer(server)
        first = asyncio.ensure_future(sends.send("first"))
        await held.began()
        closing = asyncio.ensure_future(sends.close())
        await asyncio.sleep(0)
        with pytest.raises(Closed):
            await sends.send("late")
        held.go.set()
        await closing
        assert (await first).offset == 0
        await sends.close()

    run(main())


def test_the_end_of_the_block_is_bounded_and_names_what_was_not_sent(server: FakeServer, run: Run[Any]) -> None:
    held = Held(server)

    async def main() -> None:
        async with producer(server, close_timeout_seconds=0.01) as sends:
            calls.extend(asyncio.ensure_future(sends.send(name)) for name in ("first", "second"))
            await held.began()

    calls: list[asyncio.Future[SendResult]] = []
    with pytest.raises(NotSent) as raised:
        run(main())
    held.go.set()
    named = [(each.subject, each.body) for each in raised.value.messages]
    assert named == [("orders", "first"), ("orders", "second")]
    assert [type(call.exception()) for call in calls] == [Closed] * 2


def test_an_error_of_the_block_passes_with_a_note(server: FakeServer, run: Run[Any]) -> None:
    server.fail("produce", status=503, times=-1)

    async def main() -> None:
        async with producer(server, close_timeout_seconds=0.02) as sends:
            calls.append(asyncio.ensure_future(sends.send("paid")))
            await asyncio.sleep(0)
            raise KeyError("mine")

    calls: list[asyncio.Future[SendResult]] = []
    with pytest.raises(KeyError) as raised:
        run(main())
    assert "1 message not sent" in raised.value.__notes__[0]
    assert isinstance(calls[0].exception(), Closed)


def test_a_message_needs_a_subject(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        async with producer(server, subject=None) as sends:
            with pytest.raises(ValueError, match="name a subject"):
                await sends.send("paid")

    run(main())


def test_many_tasks_lose_nothing_though_the_server_stumbles(server: FakeServer, run: Run[Any]) -> None:
    for how in ({"lose": True}, {"cut": True}, {"status": 503}, {"status": 500}):
        server.fail("produce", **how, times=2)

    async def call(sends: AsyncProducer, name: int) -> None:
        for number in range(10):
            await sends.send(f"{name}-{number}")

    async def main() -> None:
        async with producer(server) as sends, asyncio.TaskGroup() as tasks:
            for name in range(20):
                tasks.create_task(call(sends, name))

    run(main())
    stored = server.bodies("orders")
    assert len(stored) == 200
    for name in range(20):
        own = [body for body in stored if body.startswith(f"{name}-")]
        assert own == [f"{name}-{number}" for number in range(10)]


def test_a_producer_says_once_that_the_server_is_away_and_once_that_it_is_back(
    server: FakeServer, run: Run[Any], caplog: pytest.LogCaptureFixture
) -> None:
    server.fail("produce", times=3, cut=True)

    async def main() -> None:
        async with AsyncProducer(server.url, subject="orders", ids=StillIds()) as producer:
            await producer.send_batch(["a"])

    run(main())
    told = [record.getMessage() for record in caplog.records if record.name == "hourwheel.producer"]
    assert [text.split("; ")[-1].partition(",")[0] for text in told] == [
        "retrying for 120 s",
        "the server answers again",
    ]
