"""Measures Celery on Hourwheel and on Redis with the same worker: ``python -m bench.celery``.

- publish: ``apply_async`` on one thread
- consume: tasks that do nothing, sent before, by a worker with two processes
- countdown: the memory of a worker beside tasks with a countdown of an hour
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from celery import Celery

import hourwheel.celery
from bench.celery import brokers
from bench.celery.brokers import Started, children, cpu_seconds, resident_mb
from hourwheel.apps.celery import producers

Start = Callable[[Path], AbstractContextManager[Started]]

SYSTEMS: dict[str, Start] = {
    "Hourwheel": brokers.hourwheel,
    "Redis, no persistence": lambda folder: brokers.redis(folder, save="", appendonly="no"),
    "Redis, appendfsync always": lambda folder: brokers.redis(folder, save="", appendonly="yes", appendfsync="always"),
}
BACKGROUND = "Hourwheel, confirm_publish off"


def application(started: Started) -> Celery:
    hourwheel.celery.plugin.register()
    app = Celery("sender", broker=started.url, broker_transport_options=started.options, set_as_current=False)
    app.conf.task_ignore_result = True
    return app


def send(app: Celery, count: int, **how: Any) -> float:
    """Sends tasks, and returns the seconds until all of them are accepted."""
    task = app.signature("bench.celery.tasks.nothing", immutable=True)
    task.clone(args=(0,)).apply_async(**how)  # connects
    began = time.perf_counter()
    for number in range(1, count):
        task.clone(args=(number,)).apply_async(**how)
    for shared in producers._producers.values():
        shared.producer.flush()
    return time.perf_counter() - began


@contextmanager
def worker(started: Started, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = "import hourwheel.celery; from celery.__main__ import main; main()"
    env = {
        **os.environ,
        "BENCH_BROKER": started.url,
        "BENCH_OPTIONS": json.dumps(started.options),
        "BENCH_NOTES": str(folder / "notes"),
    }
    how = ["-A", "bench.celery.tasks", "worker", "--pool=prefork", "--concurrency=2", "--without-mingle", "-lWARNING"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", code, *how], env=env, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait_for_notes(folder: Path, count: int) -> float:
    """Waits for this many notes, and returns the time of the last one."""
    notes = folder / "notes"
    while not notes.exists() or len(lines := notes.read_text().splitlines()) < count:
        time.sleep(0.002)
    return float(lines[count - 1])


def publish(start: Start, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name, start(Path(name) / "data") as started:
        server, own = cpu_seconds(started.pid), time.process_time()
        seconds = send(application(started), count)
        own, server = time.process_time() - own, cpu_seconds(started.pid) - server
    return {"tasks/s": count / seconds, "client us": own / count * 1e6, "server us": server / count * 1e6}


def consume(start: Start, count: int) -> dict[str, float]:
    """Measures a worker on tasks that were sent before. The first and the last task note the time at which they run:
    tasks of one queue begin in order."""
    with tempfile.TemporaryDirectory() as name, start(Path(name) / "data") as started:
        folder = Path(name)
        app = application(started)
        app.send_task("bench.celery.tasks.note")
        send(app, count)
        app.send_task("bench.celery.tasks.note")
        with worker(started, folder) as process:
            began = wait_for_notes(folder, 1)
            pids = [process.pid, *children(process.pid)]
            own, server = cpu_seconds(*pids), cpu_seconds(started.pid)
            seconds = wait_for_notes(folder, 2) - began
            own, server = cpu_seconds(*pids) - own, cpu_seconds(started.pid) - server
    return {"tasks/s": count / seconds, "worker us": own / count * 1e6, "server us": server / count * 1e6}


def countdown(start: Start, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name, start(Path(name) / "data") as started:
        folder = Path(name)
        app = application(started)
        with worker(started, folder) as process:
            app.send_task("bench.celery.tasks.note")
            wait_for_notes(folder, 1)
            before = resident_mb(process.pid)
            send(application(started), count, countdown=3_600)
            app.send_task("bench.celery.tasks.note")
            wait_for_notes(folder, 2)
            result = {"MB before": before, "MB after": resident_mb(process.pid), "server MB": resident_mb(started.pid)}
            process.kill()
    return result


def background(folder: Path) -> AbstractContextManager[Started]:
    return brokers.hourwheel(folder, confirm_publish=False)


def rounds(measure: Callable[[Start, int], dict[str, float]], systems: dict[str, Start], count: int, many: int) -> None:
    """Measures the systems in turns, and prints the medians."""
    results: dict[str, list[dict[str, float]]] = {name: [] for name in systems}
    for _ in range(many):
        for name, start in systems.items():
            results[name].append(measure(start, count))
    for name, measured in results.items():
        medians = {key: round(median(run[key] for run in measured), 1) for key in measured[0]}
        print(f"{measure.__name__:10} {name:32} {medians}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--countdown", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["publish", "consume", "countdown"])
    options = parser.parse_args()
    if options.only in {None, "publish"}:
        rounds(publish, {**SYSTEMS, BACKGROUND: background}, options.tasks, options.rounds)
    if options.only in {None, "consume"}:
        rounds(consume, SYSTEMS, options.tasks, options.rounds)
    if options.only in {None, "countdown"}:
        memory = {BACKGROUND: background, "Redis, no persistence": SYSTEMS["Redis, no persistence"]}
        rounds(countdown, memory, options.countdown, 1)


if __name__ == "__main__":
    main()
