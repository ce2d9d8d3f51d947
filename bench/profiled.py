"""Runs the client's side of a profile, in a process of its own.

``python -m bench.profiled CASE URL SUBJECT SECONDS`` prepares the case and prints ``ready``, works once it gets a line,
prints JSON (``messages``, ``seconds``, ``cpu_seconds``), and ends once standard input closes.
"""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias

from bench.measures import batches, counted, fill
from hourwheel.client import Api, AsyncConsumer, AsyncProducer, Consumer, Delivery, Producer, Settlement

Counts: TypeAlias = tuple[int, float]
"""Messages, and the seconds that they took."""

Work: TypeAlias = Callable[[], Counts]

_FILLED = {1: 40_000, 100: 400_000, 1_000: 1_000_000}
"""Messages that a consumer finds, by their batch. More than it gets through in the time."""


def produce(batch: int, callers: int, url: str, subject: str, seconds: float) -> Work:
    producer, texts = Producer(url, subject=subject), batches(batch, callers)
    producer.send_batch(next(texts[0]))
    return lambda: counted(callers, seconds, lambda caller: len(producer.send_batch(next(texts[caller]))))


def produce_in_tasks(batch: int, callers: int, url: str, subject: str, seconds: float) -> Work:
    """Produces like ``produce``, with a task for each caller in place of a thread."""
    texts = batches(batch, callers)

    async def call(producer: AsyncProducer, caller: int, until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            count += len(await producer.send_batch(next(texts[caller])))
        return count

    async def main() -> Counts:
        async with AsyncProducer(url, subject=subject) as producer:
            await producer.send_batch(next(texts[0]))
            began = time.perf_counter()
            counts = await asyncio.gather(*(call(producer, caller, began + seconds) for caller in range(callers)))
            return sum(counts), time.perf_counter() - began

    return lambda: asyncio.run(main())


def pull_and_settle(batch: int, callers: int, url: str, subject: str, seconds: float) -> Work:
    """Pulls 100 messages or more at a time, and settles with each pull the messages of the pull before."""
    fill(url, subject, _FILLED[batch], batch)
    api = Api(url)
    held: list[list[Settlement]] = [[] for _ in range(callers)]

    def step(caller: int) -> int:
        answer = api.pull(
            subject, "taking", consumer=f"bench-{caller}", max_messages=max(batch, 100), settle=held[caller]
        )
        held[caller] = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
        return sum(len(pull.messages) for pull in answer.pulls)

    return lambda: counted(callers, seconds, step)


def settle(batch: int, callers: int, url: str, subject: str, seconds: float) -> Work:
    """Pulls everything first, 100 messages at a time, and counts the time of the settling."""
    fill(url, subject, _FILLED[batch] // 4, batch)
    api = Api(url)
    held: list[tuple[list[Settlement], int]] = []
    while pulls := api.pull(subject, "settling", consumer="bench", max_messages=100).pulls:
        count = sum(len(pull.messages) for pull in pulls)
        held.append(([Settlement(receipt=pull.receipt) for pull in pulls], count))
    left = iter(held)
    turn = threading.Lock()

    def step(_: int) -> int:
        with turn:
            following = list(islice(left, 1))
        for settlements, count in following:
            api.settle(subject, "settling", settlements)
            return count
        return 0

    return lambda: counted(callers, seconds, step)


def consume(batch: int, callers: int, url: str, subject: str, seconds: float) -> Work:
    """Consumes with a ``Consumer`` whose handler does nothing."""
    fill(url, subject, _FILLED[batch], batch)
    consumer = Consumer(url, subject, "consumers", max_messages=max(batch, 100), wait_seconds=1)
    count, last = 0, 0.0

    @consumer.handler
    def handle(message: Delivery) -> None:
        nonlocal count, last
        count += 1
        if count % 50 == 0:
            last = time.perf_counter()

    def work() -> Counts:
        runner = threading.Thread(target=consumer.run)
        began = time.perf_counter()
        runner.start()
        time.sleep(seconds)
        consumer.stop()
        runner.join()
        return count, last - began

    return work


def consume_in_tasks(batch: int, callers: int, url: str, subject: str, seconds: float) -> Work:
    """Consumes with an ``AsyncConsumer`` whose handler does nothing."""
    fill(url, subject, _FILLED[batch], batch)

    async def main() -> Counts:
        consumer = AsyncConsumer(url, subject, "consumers", max_messages=max(batch, 100), wait_seconds=1)
        count, last = 0, 0.0

        @consumer.handler
        async def handle(message: Delivery) -> None:
            nonlocal count, last
            count += 1
            if count % 50 == 0:
                last = time.perf_counter()

        began = time.perf_counter()
        asyncio.get_running_loop().call_later(seconds, consumer.stop)
        await consumer.run()
        return count, last - began

    return lambda: asyncio.run(main())


CASES: dict[str, Callable[[str, str, float], Work]] = {
    name: lambda url, subject, seconds, prepare=prepare, batch=batch, callers=callers: prepare(
        batch, callers, url, subject, seconds
    )
    for name, prepare, batch, callers in (
        ("produce-1", produce, 1, 16),
        ("produce-1-of-100", produce, 1, 100),
        ("async-produce-1-of-100", produce_in_tasks, 1, 100),
        ("produce-100", produce, 100, 8),
        ("produce-1000", produce, 1_000, 4),
        ("pull-settle-100", pull_and_settle, 100, 8),
        ("pull-settle-1000", pull_and_settle, 1_000, 4),
        ("settle-100", settle, 100, 8),
        ("consumer-1", consume, 1, 1),
        ("consumer-100", consume, 100, 1),
        ("async-consumer-100", consume_in_tasks, 100, 1),
    )
}


def main(case: str, url: str, subject: str, seconds: float) -> None:
    work = CASES[case](url, subject, seconds)
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.process_time()
    messages, taken = work()
    cpu_seconds = time.process_time() - before
    print(json.dumps({"messages": messages, "seconds": taken, "cpu_seconds": cpu_seconds}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
