"""Measures delayed messages."""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from bench.measures import bodies, median, quantile
from hourwheel.adapters.memory import MemoryStore
from hourwheel.client import Api, Message, Producer, Settlement
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall, HandClock

_BUCKETS = 17_568  # the hours of the longest delay, 732 days
_WRITES = ("add", "put", "delete", "seal")


def lateness(url: str, subject: str, rate: int, seconds: float, *, beside: bool) -> dict[str, float]:
    """Returns the lateness in milliseconds at a waiting consumer of ``rate`` messages a second. The messages fall due
    at random times, and are sent before, 1,000 at a time. ``beside``: with 1,000 messages/s sent and pulled on another
    subject."""
    count = int(rate * seconds)
    # Long enough for a loaded machine to send everything before the first message is due.
    lead = 5 + count / 15_000
    listener = subprocess.Popen(
        [sys.executable, "-m", "bench.listener", url, subject, str(count), str(lead + seconds + 30)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert listener.stdout is not None
    assert listener.stdout.readline().strip() == "listening"
    chance, texts = random.Random(count), bodies(1_000)
    with other_traffic(url) if beside else _nothing():
        start = datetime.now(UTC) + timedelta(seconds=lead)
        with Producer(url, subject=subject) as producer:
            for _ in range(count // 1_000):
                dues = [start + timedelta(seconds=chance.random() * seconds) for _ in texts]
                producer.send_batch([Message(text, deliver_at=due) for text, due in zip(texts, dues, strict=True)])
        sent = datetime.now(UTC)
        answer = json.loads(listener.stdout.readline())
    listener.wait(timeout=30)
    late: list[float] = answer["late_ms"]
    return {
        "due_per_s": rate,
        "messages": len(late),
        "sent_at_once": answer["sent_at_once"],
        "lost": count - len(late) - answer["sent_at_once"],
        "sent_in_time": float(sent < start),
        "early": sum(milliseconds < 0 for milliseconds in late),
        "p50_ms": round(median(late), 1),
        "p99_ms": round(quantile(late, 0.99), 1),
        "max_ms": round(max(late), 1),
    }


def sustained(url: str, rates: list[int], seconds: float) -> dict[str, float]:
    """Returns the highest of these rates at which 99 of 100 messages arrive within a second of their due time."""
    best: dict[str, float] = {"due_per_s": 0}
    for rate in rates:
        late = lateness(url, f"sustained-{rate}", rate, seconds, beside=False)
        if late["lost"] or late["p99_ms"] >= 1_000:
            break
        best = late
    return best


def opening(messages: int, batch: int) -> dict[str, float]:
    """Returns time and memory to open an hour with this many pending messages, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder:
        arguments = [sys.executable, "-m", "bench.opening", folder, str(messages), str(batch)]
        subprocess.run([*arguments, "fill"], check=True)
        answer = subprocess.run([*arguments, "open"], check=True, stdout=subprocess.PIPE, text=True)
        measured: dict[str, float] = json.loads(answer.stdout)
        return measured


def open_buckets(few: str, many: str, rounds: int) -> dict[str, float]:
    """Returns the p50 of sending ten delayed messages to a server with 1 and to one with 17,568 open buckets, in
    turns."""
    with Producer(many, subject="scattered") as producer:
        for first in range(1, _BUCKETS, 500):
            hours = range(first, min(first + 500, _BUCKETS))
            producer.send_batch([Message("x", delay=hour * 3_600) for hour in hours])
    texts = bodies(10)
    times: dict[str, list[float]] = {few: [], many: []}
    senders = {url: Producer(url, subject="due-in-an-hour") for url in (few, many)}
    for sender in senders.values():
        sender.send_batch([Message(text, delay="1h") for text in texts])
    for _ in range(rounds):
        for url, sender in senders.items():
            for _ in range(50):
                began = time.perf_counter()
                sender.send_batch([Message(text, delay="1h") for text in texts])
                times[url].append((time.perf_counter() - began) * 1_000)
    for sender in senders.values():
        sender.close()
    few_ms, many_ms = median(times[few]), median(times[many])
    return {
        "p50_ms_1_bucket": round(few_ms, 3),
        f"p50_ms_{_BUCKETS}_buckets": round(many_ms, 3),
        "ratio": round(many_ms / few_ms, 3),
    }


def operations(batch: int, spread_seconds: int, messages: int) -> dict[str, float]:
    """Returns the store operations for each of this many delayed messages with due times within ``spread_seconds``:
    those to send it, and all up to its acknowledgement, including those of the wheels. Counts the calls that DynamoDB
    would get."""
    store = CallByCall(MemoryStore())
    bench = Bench(store, clock=HandClock(NOON_MS), settings=Settings(retry=AT_ONCE, registry_seconds=60))
    bench.deployment.groups.put("orders", "billing")
    chance = random.Random(batch)
    store.calls.clear()
    for _ in range(messages // batch):
        delays = [3_600 + chance.random() * spread_seconds for _ in range(batch)]
        bench.deployment.produce("orders", [NewMessage(body="x" * 200, delay=delay) for delay in delays])
    sent = _counted(store)
    received = 0
    until_ms = bench.clock.ms + (3_600 + spread_seconds + 7_200) * 1_000
    while bench.clock.ms < until_ms:
        bench.turn(min(86_400, spread_seconds / 60))
        while pulls := bench.pull(1_000):
            for pull in pulls:
                received += len(pull.messages)
                bench.settle(pull)
    assert received == messages
    whole = _counted(store)
    names = ("writes_to_send", "reads_to_send", "writes_in_all", "reads_in_all")
    return {name: round(count / messages, 3) for name, count in zip(names, (*sent, *whole), strict=True)}


def _counted(store: CallByCall) -> tuple[int, int]:
    """Returns the writes and reads so far."""
    writes = sum(verb in _WRITES for verb, _ in store.calls)
    return writes, len(store.calls) - writes


@contextmanager
def other_traffic(url: str) -> Iterator[None]:
    """Sends and pulls 1,000 messages/s, ten at a time."""
    over = threading.Event()
    texts = bodies(10)

    def send() -> None:
        with Producer(url, subject="beside") as producer:
            while not over.wait(0.01):
                producer.send_batch(texts)

    def take() -> None:
        with Api(url) as api:
            while not over.is_set():
                for pull in api.pull("beside", "bench", consumer="bench", max_messages=100, wait_seconds=1).pulls:
                    api.settle("beside", "bench", [Settlement(receipt=pull.receipt)])

    threads = [threading.Thread(target=work) for work in (send, take)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
