"""Ctrl-C at any moment of a call leaves the client usable by its other threads: nothing waits for a lock for ever."""

import gc
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from hourwheel.client import Consumer, Producer
from hourwheel.client.consuming.prefetcher import Prefetcher
from tests.unit.client.fake import FakeServer

INTERRUPTS = 200
AFTER_SECONDS = 0.0003
FAR_SECONDS = 30.0


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Makes the alarm interrupt the main thread as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield
    signal.signal(signal.SIGALRM, before)


def interrupt_again_and_again(call: Callable[[], object], other: Callable[[], object]) -> None:
    """Interrupts ``call`` at moments of chance; after each, ``other`` has to end in another thread."""
    for _ in range(INTERRUPTS):
        with pytest.raises(KeyboardInterrupt):
            call_until_interrupted(call)
        thread = threading.Thread(target=other, daemon=True)
        thread.start()
        thread.join(FAR_SECONDS)
        assert not thread.is_alive()


def call_until_interrupted(call: Callable[[], object]) -> None:
    signal.setitimer(signal.ITIMER_REAL, AFTER_SECONDS)
    while True:
        call()


def test_an_interrupted_flush_holds_up_no_sender(server: FakeServer, interrupts: None) -> None:
    producer = Producer(server.url, subject="orders")
    interrupt_again_and_again(lambda: producer.flush(0), lambda: producer.send("paid").result(FAR_SECONDS))
    producer.close()
    assert server.bodies("orders") == ["paid"] * INTERRUPTS


def test_an_interrupted_loop_does_not_hold_up_the_end_of_its_consumer(server: FakeServer, interrupts: None) -> None:
    with Consumer(server.url, "orders", "billing") as messages:
        messages.stop()
        loop = iter(messages)
        interrupt_again_and_again(lambda: next(loop, None), messages.stop)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # the collector closes what an interrupt drops
def test_an_interrupted_batch_holds_up_no_other_caller(server: FakeServer, interrupts: None) -> None:
    producer = Producer(server.url, subject="orders")
    interrupt_again_and_again(lambda: producer.send_batch(["mine"]), lambda: producer.send_batch(["paid"]))
    producer.close()
    assert server.bodies("orders").count("paid") == INTERRUPTS
    gc.collect()


def test_a_wait_for_a_result_that_is_interrupted_holds_up_no_sender(server: FakeServer, interrupts: None) -> None:
    producer = Producer(server.url, subject="orders")
    interrupt_again_and_again(
        lambda: producer.send("mine").result(FAR_SECONDS), lambda: producer.send("paid").result(FAR_SECONDS)
    )
    producer.close()
    assert server.bodies("orders").count("paid") == INTERRUPTS


def test_an_interrupted_wait_for_messages_holds_up_no_other_loop(server: FakeServer, interrupts: None) -> None:
    producer = Producer(server.url, subject="orders")
    with Consumer(server.url, "orders", "billing") as messages:
        loop = iter(messages)

        def send_and_handle() -> None:
            producer.send_batch(["paid"])
            next(iter(messages)).ack()

        send_and_handle()  # so that the subject exists
        interrupt_again_and_again(lambda: next(loop), send_and_handle)
    producer.close()
    assert server.bodies("orders") == ["paid"] * (INTERRUPTS + 1)


def test_a_signal_that_stops_a_loop_between_its_look_and_its_wait_ends_it(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs on the thread that looks, and so within its lock."""
    pulls_end = threading.Event()
    server.fail("pull", times=-1, before=lambda: pulls_end.wait(FAR_SECONDS))  # no pull wakes the loop
    messages = Consumer(server.url, "orders", "billing")
    note_idle = Prefetcher._note_idle

    def stop_behind(self: Prefetcher, more: int) -> None:
        note_idle(self, more)
        if more > 0:
            messages.stop()

    monkeypatch.setattr(Prefetcher, "_note_idle", stop_behind)
    ended = threading.Event()

    def loop() -> None:
        with messages:
            for _ in messages:
                pass
        ended.set()

    threading.Thread(target=loop, daemon=True).start()
    try:
        assert ended.wait(FAR_SECONDS / 2)
    finally:
        pulls_end.set()
