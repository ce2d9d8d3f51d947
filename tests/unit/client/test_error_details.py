"""Consumers say why messages failed: the type of the error and the first line of its text, unless they are told not
to."""

import asyncio
import logging
from contextlib import nullcontext
from typing import Any

import pytest

from hourwheel.client import AsyncConsumer, Consumer, Delivery, Reject, Retry
from hourwheel.client.consuming.handling import error_text
from hourwheel.model.fields import DETAILS_BYTES
from tests.unit.client.aio.conftest import until
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds
from tests.unit.client.test_consumer import Running, consumer, fill, group

OPTIONS: dict[str, Any] = {"drain_seconds": 0.1, "settle_linger_seconds": 0.02, "wait_seconds": 0.2}


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("this error has no text")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no price"), "ValueError: no price"),
        (ValueError("no price\nof item 7\n"), "ValueError: no price"),
        (ValueError("\n\n  no price  "), "ValueError: no price"),
        (KeyError("price"), "KeyError: 'price'"),
        (ValueError(), "ValueError"),
        (ValueError(" \n "), "ValueError"),
        (Mute(), "Mute"),
        (SystemExit(3), "SystemExit: 3"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_the_text_of_an_error_is_its_type_and_first_line(error: BaseException, text: str) -> None:
    assert error_text(error) == text


def raising(error: BaseException) -> Any:
    def handle(message: Delivery) -> None:
        raise error

    return handle


def bury(server: FakeServer, error: BaseException, **options: Any) -> Any:
    """Handles a message for the last time, with an error; returns its dead letter."""
    server.broker.put_group("orders", "billing", {"max_attempts": 1})
    fill(server, "a")
    with Running(consumer(server, **options), raising(error)):
        server.wait_until(lambda broker: bool(group(server).dead))
    (letter,) = group(server).dead
    return letter


def test_a_dead_letter_has_the_error_of_the_last_attempt(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    letter = bury(server, ValueError("no price\nof item 7"))
    assert (letter["reason"], letter["detail"]) == ("attempts", "ValueError: no price")


def test_a_long_text_is_cut_and_one_that_is_no_unicode_is_replaced(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # pytest-xdist cannot pass on a line that is no Unicode
    letter = bury(server, ValueError("\ud800" + "ä" * 5_000))
    assert letter["detail"] == "ValueError: ?" + "ä" * (1_000 - len("ValueError: ?"))


def test_the_text_of_retry_is_sent_with_its_delay(server: FakeServer) -> None:
    fill(server, "a", "b")
    texts = {"a": "the bank is closed", "b": ""}

    def handle(message: Delivery) -> None:
        raise Retry(texts[str(message.body)], delay="10m")

    with Running(consumer(server), handle):
        server.wait_until(lambda broker: len(group(server).backing_off) == 2)
    found = {message["body"]: (delay, message.get("detail")) for delay, message in group(server).backing_off}
    assert found == {"a": ("10m", "the bank is closed"), "b": ("10m", None)}


@pytest.mark.parametrize("error", [ValueError("no price"), Reject("no price")], ids=["attempts", "rejected"])
def test_a_consumer_that_is_told_not_to_sends_no_text_of_an_error(server: FakeServer, error: Exception) -> None:
    assert bury(server, error, error_details=False).get("detail") is None
    assert "no price" not in str([request.body for request in server.calls("settle") + server.calls("pull")])


def test_what_a_handler_says_itself_is_sent_all_the_same_and_stays(server: FakeServer) -> None:
    fill(server, "a", "b", "c")

    def handle(message: Delivery) -> None:
        if message.body == "a":
            message.retry(detail="the bank is closed")
        elif message.body == "b":
            message.dead(detail="no customer")
        else:
            message.dead()
        raise ValueError("behind it")

    server.broker.put_group("orders", "billing", {"max_attempts": 1})
    with Running(consumer(server, error_details=False), handle):
        server.wait_until(lambda broker: len(group(server).dead) == 3)
    found = {letter["body"]: letter.get("detail") for letter in group(server).dead}
    assert found == {"a": "the bank is closed", "b": "no customer", "c": None}


def test_an_error_behind_a_decision_does_not_explain_it(server: FakeServer) -> None:
    fill(server, "a")

    def handle(message: Delivery) -> None:
        message.dead()
        raise ValueError("behind it")

    with Running(consumer(server), handle):
        server.wait_until(lambda broker: bool(group(server).dead))
    assert group(server).dead[0].get("detail") is None


def test_each_message_of_a_failed_batch_has_the_error(server: FakeServer) -> None:
    server.broker.put_group("orders", "billing", {"max_attempts": 1})
    fill(server, "a", "b")
    taken = consumer(server)

    @taken.batch_handler
    def handle(messages: list[Delivery]) -> None:
        messages[0].dead(detail="no customer")
        taken.stop()
        raise OSError("no disk")

    taken.run()
    found = {letter["body"]: letter["detail"] for letter in group(server).dead}
    assert found == {"a": "no customer", "b": "OSError: no disk"}


@pytest.mark.parametrize(("error_details", "detail"), [(True, "ValueError: no price"), (False, None)])
def test_an_error_that_leaves_a_loop_says_why(server: FakeServer, error_details: bool, detail: str | None) -> None:
    server.broker.put_group("orders", "billing", {"max_attempts": 1})
    fill(server, "a")

    def loop() -> None:
        with consumer(server, error_details=error_details) as messages:
            next(iter(messages))
            raise ValueError("no price")

    with pytest.raises(ValueError, match="no price"):
        loop()
    assert group(server).dead[0].get("detail") == detail


@pytest.mark.parametrize("loops", [False, True], ids=["handler", "loop"])
@pytest.mark.parametrize(("error_details", "detail"), [(True, "ValueError: no price"), (False, None)])
def test_tasks_say_why_too(server: FakeServer, loops: bool, error_details: bool, detail: str | None) -> None:
    server.broker.put_group("orders", "billing", {"max_attempts": 1})
    fill(server, "a")

    async def main() -> None:
        taken = AsyncConsumer(server.url, "orders", "billing", ids=StillIds(), error_details=error_details, **OPTIONS)
        if loops:
            async with taken as messages:
                await anext(aiter(messages))
                raise ValueError("no price")

        @taken.handler
        async def handle(message: Delivery) -> None:
            raise ValueError("no price")

        running = asyncio.ensure_future(taken.run())
        await until(lambda: bool(group(server).dead) or running.done())
        taken.stop()
        await running

    with pytest.raises(ValueError, match="no price") if loops else nullcontext():
        asyncio.run(main())
    assert group(server).dead[0].get("detail") == detail


def test_a_retried_message_shows_what_was_said_of_its_last_attempt(server: FakeServer) -> None:
    fill(server, "a")
    seen: list[tuple[int, str | None]] = []
    with Consumer(server.url, "orders", "billing", ids=StillIds(), **OPTIONS) as messages:
        for message in messages:
            seen.append((message.attempt, message.detail))
            if message.attempt == 2:
                break
            message.retry(detail="the bank is closed")
    assert seen == [(1, None), (2, "the bank is closed")]


def test_a_large_batch_that_fails_sends_only_as_many_texts_as_the_server_keeps(server: FakeServer) -> None:
    fill(server, *map(str, range(100)))
    taken = consumer(server)
    sizes: list[int] = []

    @taken.batch_handler
    def handle(messages: list[Delivery]) -> None:
        sizes.append(len(messages))
        taken.stop()
        raise ValueError("ä" * 5_000)

    taken.run()
    assert sizes[0] > 2 * DETAILS_BYTES // 2_000
    (retry,) = [entry["retry"] for call in server.calls("settle") for entry in call.body["settle"] if "retry" in entry]
    texts = [entry["detail"] for entry in retry if not isinstance(entry, int)]
    assert len(retry) == sizes[0]
    assert (
        0
        < sum(len(text.encode()) for text in texts)
        <= DETAILS_BYTES
        < sum(len(text.encode()) for text in texts) + 2_000
    )
