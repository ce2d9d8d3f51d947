"""Measures the cost of routes: moves of a queue beside a producer, and many groups, subjects, queues, cells beside one.

Run it alone with ``python -m bench.routes``; ``make bench`` runs it as well. Rounds take turns, and each ratio is the
median of the rounds' own ratios. A ratio of CPU is that of the server's time for each message, which says more than
seconds do on a machine that others keep busy.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.limits import cpu_seconds
from bench.measures import batches, bodies, counted, median, quantile
from bench.serving import Served, serving
from hourwheel.client import Api, Message, Settlement

CALLERS, BATCH = 4, 10
MANY_GROUPS, MANY_SUBJECTS, MANY_QUEUES = 1_000, 1_000, 64
_MEMORY = Path("/dev/shm")  # where the machine has but one disk: a second cell in memory, which syncs for nothing
_MOVES_OF_A_QUEUE = 10  # a queue has at most 16 parts with messages


@dataclass(frozen=True)
class Load:
    """The subjects to which messages go in turn, and from which one group pulls them in turn."""

    served: Served
    subjects: list[str]
    group: str = "g-0"


@dataclass(frozen=True)
class Speed:
    """Messages a second, and microseconds of the server's CPU for each."""

    per_s: float
    server_us: float


def produced(load: Load, seconds: float) -> Speed:
    texts, turn = batches(BATCH, CALLERS), count()
    with Api(load.served.url) as api:

        def step(caller: int) -> int:
            messages = [Message(text) for text in next(texts[caller])]
            return len(api.produce(load.subjects[next(turn) % len(load.subjects)], messages))

        return _speed(load.served, seconds, step)


def pulled(load: Load, seconds: float) -> Speed:
    """Pulls a batch at a time, and settles it before the next pull."""
    turn = count()
    with Api(load.served.url) as api:

        def step(caller: int) -> int:
            subject = load.subjects[next(turn) % len(load.subjects)]
            pulls = api.pull(subject, load.group, consumer=f"c-{caller}", max_messages=BATCH).pulls
            if pulls:
                api.settle(subject, load.group, [Settlement(receipt=pull.receipt) for pull in pulls])
            return sum(len(pull.messages) for pull in pulls)

        return _speed(load.served, seconds, step)


def _speed(served: Served, seconds: float, step: Callable[[int], int]) -> Speed:
    before = cpu_seconds(served.pid)
    messages, taken = counted(CALLERS, seconds, step)
    return Speed(messages / taken, (cpu_seconds(served.pid) - before) / messages * 1e6)


def compared(one: Load, many: Load, rounds: int, seconds: float) -> dict[str, float]:
    """Returns how much longer a message takes with many than with one: 1.2 is a fifth longer."""
    # The first send to a subject and its first pull cost more than the next ones.
    with Api(one.served.url) as api:
        for subject in [*one.subjects, *many.subjects]:
            api.produce(subject, [Message("first")])
            api.pull(subject, one.group, consumer="first", max_messages=1, lease_seconds=1)
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, work in (("produce", produced), ("pull", pulled)):
            alone, together = work(one, seconds), work(many, seconds)
            times.setdefault(f"{name}_one_per_s", []).append(alone.per_s)
            times.setdefault(f"{name}_many_per_s", []).append(together.per_s)
            times.setdefault(f"{name}_ratio", []).append(alone.per_s / together.per_s)
            times.setdefault(f"{name}_cpu_ratio", []).append(together.server_us / alone.server_us)
    return {name: round(median(found), 2 if "ratio" in name else None) for name, found in times.items()}


def groups(rounds: int, seconds: float) -> dict[str, float]:
    with serving() as served, Api(served.url) as api:
        for subject, number in (("one", 1), ("many", MANY_GROUPS)):
            api.put_subject(subject)
            for group in range(number):
                api.put_group(subject, f"g-{group}")
        return compared(Load(served, ["one"]), Load(served, ["many"]), rounds, seconds)


def subjects(rounds: int, seconds: float) -> dict[str, float]:
    with serving() as served:
        many = [f"many-{number}" for number in range(MANY_SUBJECTS)]
        return compared(Load(served, ["one"]), Load(served, many), rounds, seconds)


def queues(rounds: int, seconds: float) -> dict[str, float]:
    with serving() as served, Api(served.url) as api:
        api.put_subject("one", queues=1)
        api.put_subject("many", queues=MANY_QUEUES)
        return compared(Load(served, ["one"]), Load(served, ["many"]), rounds, seconds)


def cells(folder: Path, rounds: int, seconds: float) -> dict[str, float]:
    """Compares two queues in one cell with two queues in two cells, the other one in ``folder``."""
    with _with_cell(folder) as served, Api(served.url) as api:
        api.put_subject("one", queues=2)
        api.put_subject("many", queues=2)
        api.move_queue("many", 1, "other")
        return compared(Load(served, ["one"]), Load(served, ["many"]), rounds, seconds)


def moves(rounds: int) -> dict[str, float]:
    """Returns the p99 of sends to queues that move 100 times meanwhile, back and forth between two cells, and of sends
    to queues that do not."""
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder, _with_cell(Path(folder)) as served:
        times: dict[bool, list[float]] = {False: [], True: []}
        ratios = []
        for number in range(rounds):
            late = {}
            for moving in (False, True):
                found = _beside_moves(served.url, f"round-{number}-{moving}", moving)
                times[moving] += found
                late[moving] = quantile(found, 0.99)
            ratios.append(late[True] / late[False])
    answer = {f"p99_ms_{'with' if moving else 'without'}": round(quantile(times[moving], 0.99), 2) for moving in times}
    return {**answer, "sends": len(times[True]), "ratio": round(median(ratios), 2)}


def _beside_moves(url: str, prefix: str, moving: bool) -> list[float]:
    """Returns the milliseconds of sends to ten queues one after the other, each while it moves ten times, or as long
    without a move."""
    times: list[float] = []
    messages = [Message(text) for text in bodies(1)]
    with Api(url) as api, Api(url) as mover:
        for number in range(100 // _MOVES_OF_A_QUEUE):
            subject = f"{prefix}-{number}"
            api.produce(subject, messages)
            over = threading.Event()
            thread = threading.Thread(target=_move, args=(mover, subject if moving else None, over))
            thread.start()
            while not over.is_set():
                began = time.perf_counter()
                api.produce(subject, messages)
                times.append((time.perf_counter() - began) * 1_000)
            thread.join()
    return times


def _move(api: Api, subject: str | None, over: threading.Event) -> None:
    for number in range(_MOVES_OF_A_QUEUE):
        if subject is not None:
            api.move_queue(subject, 0, "home" if number % 2 else "other")
        time.sleep(0.1)
    over.set()


@contextmanager
def _with_cell(folder: Path) -> Iterator[Served]:
    with (
        tempfile.TemporaryDirectory(prefix="hourwheel-cell-", dir=folder) as other,
        serving("--cell", f"other={Path(other) / 'data'}") as served,
    ):
        with Api(served.url) as api:
            api.put_cell("other")
        yield served


def measured(rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as disk:
        found = {
            f"{MANY_GROUPS:,} groups": groups(rounds, seconds),
            f"{MANY_SUBJECTS:,} subjects": subjects(rounds, seconds),
            f"{MANY_QUEUES} queues": queues(rounds, seconds),
            "2 cells, one disk": cells(Path(disk), rounds, seconds),
        }
    if _MEMORY.exists():
        found["2 cells, one in memory"] = cells(_MEMORY, rounds, seconds)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that it runs")
    rounds, seconds = (1, 0.5) if parser.parse_args().quick else (5, 1.0)
    found = {"routes": measured(rounds, seconds), "moves": {"": moves(rounds)}}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
