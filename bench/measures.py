"""Measures over HTTP, through the client. Each measurement returns plain metrics."""

import base64
import json
import math
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import cycle

from hourwheel.client import Api, Consumer, Delivery, Producer, Settlement

BODY_BYTES = 200
CONSUMER = "bench"
_APART = 20_000  # messages between equal bodies: more than the server stores in one row or commit


def bodies(count: int) -> list[str]:
    """Returns bodies of 200 bytes of JSON, no two alike, half of each noise that does not compress."""
    noise = random.Random(count)

    def body(number: int) -> str:
        text = json.dumps({"order": number, "customer": f"c-{number % 977}", "paid": number % 2 == 0, "note": ""})
        filler = base64.b64encode(noise.randbytes(BODY_BYTES)).decode()
        return text[:-2] + filler[: BODY_BYTES - len(text)] + text[-2:]

    return [body(number) for number in range(count)]


def batches(batch: int, callers: int = 1) -> list[Iterator[list[str]]]:
    """Returns endless batches for each caller. Equal bodies never meet: callers whose requests share a row would
    otherwise store copies, which compress to nothing."""
    turns = max(2, math.ceil(_APART / (batch * callers)))
    pool = bodies(batch * callers * turns)
    texts = [pool[first : first + batch] for first in range(0, len(pool), batch)]
    return [cycle(texts[caller::callers]) for caller in range(callers)]


def quantile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def counted(callers: int, seconds: float, step: Callable[[int], int]) -> tuple[int, float]:
    """Has several threads repeat ``step`` (which returns its units) for ``seconds``, or until it returns 0. Returns the
    units, and the seconds until the last of them."""
    counts = [0] * callers
    last = [0.0] * callers
    until = time.perf_counter() + seconds

    def repeat(caller: int) -> None:
        while time.perf_counter() < until and (units := step(caller)):
            counts[caller] += units
            last[caller] = time.perf_counter()

    threads = [threading.Thread(target=repeat, args=(caller,)) for caller in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), max(last) - began


def together(callers: int, seconds: float, step: Callable[[int], int]) -> float:
    """Returns the units per second of several threads that repeat ``step``: see ``counted``."""
    units, taken = counted(callers, seconds, step)
    return units / taken


def produced(url: str, subject: str, batch: int, callers: int, seconds: float) -> float:
    """Returns the messages/s accepted: each caller sends batches of this size and waits until each is durable."""
    texts = batches(batch, callers)
    with Producer(url, subject=subject) as producer:
        return together(callers, seconds, lambda caller: len(producer.send_batch(next(texts[caller]))))


def pulled(url: str, subject: str, group: str, limit: int, callers: int, seconds: float) -> float:
    """Returns the messages/s pulled, up to ``limit`` at a time, and settled: each pull settles the one before."""
    api = Api(url)
    held: list[list[Settlement]] = [[] for _ in range(callers)]

    def step(caller: int) -> int:
        answer = api.pull(
            subject,
            group,
            consumer=f"bench-{caller}",
            max_messages=limit,
            settle=held[caller],
        )
        held[caller] = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
        return sum(len(pull.messages) for pull in answer.pulls)

    rate = together(callers, seconds, step)
    api.close()
    return rate


def consumed(url: str, subject: str, batch: int, seconds: float) -> float:
    """Returns the messages/s through ``Consumer`` with a handler that does nothing."""
    consumer = Consumer(url, subject, "consumers", max_messages=batch, wait_seconds=1)
    count, last = 0, 0.0

    @consumer.handler
    def handle(message: Delivery) -> None:
        nonlocal count, last
        count += 1
        if count % 50 == 0:
            last = time.perf_counter()

    runner = threading.Thread(target=consumer.run)
    began = time.perf_counter()
    runner.start()
    time.sleep(seconds)
    rate = count // 50 * 50 / (last - began)
    consumer.stop()
    runner.join()
    return rate


def latency(url: str, samples: int, pause_seconds: float) -> list[float]:
    """Returns the milliseconds from ``send`` to the handler of a consumer that waits, one message at a time."""
    spans = latency_spans(url, samples, pause_seconds)
    return [(handled - sent) * 1_000 for sent, handled in spans[samples // 10 :]]


def latency_spans(url: str, samples: int, pause_seconds: float) -> list[tuple[float, float]]:
    """Returns when each message was sent, and when its handler ran, in seconds of ``perf_counter``."""
    consumer = Consumer(url, "latency", "bench", wait_seconds=20)
    arrived = threading.Semaphore(0)
    found: list[tuple[float, float]] = []

    @consumer.handler
    def handle(message: Delivery) -> None:
        found.append((float(message.body), time.perf_counter()))
        arrived.release()

    runner = threading.Thread(target=consumer.run)
    runner.start()
    with Producer(url, subject="latency", linger_seconds=0) as producer:
        for _ in range(samples):
            producer.send(str(time.perf_counter()))
            arrived.acquire(timeout=10)
            time.sleep(pause_seconds)
    consumer.stop()
    runner.join()
    return found


def fill(url: str, subject: str, messages: int, batch: int = 1_000) -> None:
    """Sends messages in batches of this size, from several threads if the batches are small."""
    callers = 1 if batch == 1_000 else 16
    texts, left = batches(batch, callers), iter(range(messages // batch))
    with Producer(url, subject=subject) as producer:

        def step(caller: int) -> int:
            return next(left, -1) >= 0 and len(producer.send_batch(next(texts[caller])))

        counted(callers, math.inf, step)


def pull_times(url: str, subject: str, pulls: int) -> list[float]:
    """Returns the milliseconds of pulls of ten messages each, by a group that is new to the subject."""
    times = []
    with Api(url) as api:
        settle: list[Settlement] = []
        for _ in range(pulls):
            began = time.perf_counter()
            answer = api.pull(subject, "bench", consumer="bench", max_messages=10, settle=settle)
            times.append((time.perf_counter() - began) * 1_000)
            settle = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
    return times


def produce_times(url: str, subject: str, batch: int, sends: int) -> list[float]:
    """Returns the milliseconds of sends of batches of this size, one at a time."""
    times = []
    (texts,) = batches(batch)
    with Producer(url, subject=subject) as producer:
        for _ in range(sends):
            sent = next(texts)
            began = time.perf_counter()
            producer.send_batch(sent)
            times.append((time.perf_counter() - began) * 1_000)
    return times


def with_groups(url: str, subject: str, groups: int) -> None:
    """Creates this many groups of the subject, each of which has pulled."""
    with Api(url) as api, Producer(url, subject=subject) as producer:
        producer.send_batch(["first"])
        for number in range(groups):
            api.pull(subject, f"group-{number}", consumer=CONSUMER)


class Waiters:
    """Consumers in a long poll, in a process of their own."""

    def __init__(self, url: str, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.waiters", url, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.ready = self._process.stdout.readline().strip() == "waiting"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def median(values: list[float]) -> float:
    return statistics.median(values)


def today() -> str:
    return datetime.now(UTC).date().isoformat()
