"""Measures the time and the memory that a wheel takes to open an hour full of pending messages.

``python -m bench.opening FOLDER MESSAGES BATCH fill`` stores them, ``… open`` opens the hour in a process of its own
and prints JSON.
"""

import json
import random
import sys
import time
from pathlib import Path

from bench.measures import bodies
from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.buckets.buckets import buckets
from hourwheel.context import Settings
from hourwheel.delay.wheel import Wheel, WheelEnd
from hourwheel.model.messages import NewMessage
from tests.support import NOON_MS, Bench, HandClock


def cell_in(folder: Path, now_ms: int) -> Bench:
    """Makes a cell with the embedded server's settings and a clock of its own."""
    store = SqliteStore(folder / "hour.db", synchronous="NORMAL")
    settings = Settings(inline_bytes=300 * 1_024, tick_ms=0)
    return Bench(store, FileBlobs(folder), HandClock(now_ms), settings=settings)


def fill(folder: Path, messages: int, batch: int) -> None:
    """Sends messages that are due at random times of one hour, an hour before that."""
    bench, chance = cell_in(folder, NOON_MS), random.Random(messages)
    texts = bodies(batch)
    for _ in range(messages // batch):
        delays = [3_600 + chance.random() * 3_599 for _ in texts]
        bench.deployment.produce(
            "pending", [NewMessage(body=text, delay=delay) for text, delay in zip(texts, delays, strict=True)]
        )


def opened(folder: Path) -> dict[str, float]:
    bench = cell_in(folder, NOON_MS + 3_600_000 - 60_000)
    ((bucket, _),) = buckets(bench.deployment.context)
    wheel = Wheel(bench.deployment.context, bench.deployment.registry, bucket, "bench")
    idle_kb = memory_kb("VmRSS")
    began = time.perf_counter()
    assert wheel.run(lambda seconds: False) is WheelEnd.STOPPED
    return {
        "messages": wheel.waiting,
        "seconds": round(time.perf_counter() - began, 2),
        "peak_mb_above_idle": round((memory_kb("VmHWM") - idle_kb) / 1_024, 1),
    }


def memory_kb(name: str) -> int:
    """Returns the memory of this process in use (``VmRSS``) or at its peak (``VmHWM``). Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


if __name__ == "__main__":
    folder, messages, batch, step = sys.argv[1:]
    if step == "fill":
        fill(Path(folder), int(messages), int(batch))
    else:
        print(json.dumps(opened(Path(folder))))
