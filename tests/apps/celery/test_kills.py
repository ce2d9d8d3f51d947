"""Workers that are killed, and servers that are: no task is lost, and none that was acknowledged runs again."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from hourwheel.client import Api, RetryPolicy
from tests.apps.celery.workers import Journal, Worker, application, entry_points, environment
from tests.integration.poison import POISON, run_until_dead
from tests.integration.process import Server

TASKS = "tests.apps.celery.shop"
LEASE_SECONDS = 5


@pytest.mark.parametrize("pool", ["prefork", "solo", "threads"])
def test_the_prefetched_tasks_of_a_killed_worker_run_on_another(broker: str, tmp_path: Path, pool: str) -> None:
    journal, go_on = Journal(tmp_path / "journal"), tmp_path / "go-on"
    env = environment(
        broker,
        journal.path,
        entry_points(tmp_path / "entry-points"),
        visibility_timeout=LEASE_SECONDS,
        queue_name_prefix=f"{pool}.",
    )
    how = ("--pool", pool, "--concurrency", "2", "--queues", "celery", "--without-mingle")
    first = Worker("first", tmp_path / "first.log", env, *how)
    second: Worker | None = None
    try:
        first.ready()
        with application(broker, queue_name_prefix=f"{pool}.") as app:
            for number in range(20):
                app.send_task(f"{TASKS}.wait_for_file", [str(go_on), f"item-{number}"])
        journal.wait("item-0", 1)
        first.kill()
        go_on.touch()
        second = Worker("second", tmp_path / "second.log", env, *how).ready()
        for number in range(20):
            journal.wait_for_word(f"item-{number}", "waited")
    finally:
        first.kill()
        if second is not None:
            second.kill()
    done = Counter(line for line in journal.lines() if line.startswith("waited"))
    assert done == Counter({f"waited item-{number}": 1 for number in range(20)})


def test_a_killed_server_comes_back_with_every_task(tmp_path: Path) -> None:
    journal, data = Journal(tmp_path / "journal"), tmp_path / "data"
    server = Server(data)
    broker = f"hourwheel://127.0.0.1:{server.port}"
    env = environment(broker, journal.path, entry_points(tmp_path / "entry-points"), visibility_timeout=LEASE_SECONDS)
    how = ("--pool", "solo", "--queues", "celery", "--without-mingle")
    worker = Worker("steady", tmp_path / "log", env, *how)
    try:
        worker.ready()
        with application(broker) as app:
            for number in range(50):
                app.send_task(f"{TASKS}.sell", [f"item-{number}"], countdown=1 if number % 2 else None)
            server.kill()
            server = Server(data, port=server.port)
            app.send_task(f"{TASKS}.sell", ["after"])
        for item in (*(f"item-{number}" for number in range(50)), "after"):
            journal.wait(item, 1)
        assert worker.process.poll() is None
    finally:
        worker.kill()
        server.stop()


def test_a_task_that_ends_its_worker_takes_no_prefetched_one_with_it(
    broker: str, api: Api, tmp_path: Path, name: str
) -> None:
    journal, prefix = Journal(tmp_path / "journal"), f"{name}."
    options = {"queue_name_prefix": prefix, "visibility_timeout": 1, "max_attempts": 4}
    env = environment(broker, journal.path, entry_points(tmp_path / "entry-points"), **options)
    items = [f"item-{number}" for number in range(60)]
    items[10] = POISON
    with application(broker, **options) as app:
        for item in items:
            app.send_task(f"{TASKS}.end_at_poison", [item])
    queue = (f"{prefix}celery", "celery")
    api.put_group(*queue, retry=RetryPolicy(first_seconds=0.0, cap_seconds=0.0))
    how = (
        "--pool",
        "solo",
        "--queues",
        "celery",
        "--prefetch-multiplier",
        "60",
        "--without-mingle",
        "--without-gossip",
    )
    others = {item for item in items if item != POISON}

    def done() -> bool:
        return {line.split()[1] for line in journal.lines()} == others

    command = [sys.executable, "-m", "celery", "-A", TASKS, "worker", "-n", "poisoned@test", *how]
    assert run_until_dead(command, api, queue, done, env) == 5
    (dead,) = api.list_dead(*queue).messages
    assert (POISON in str(dead.body), dead.attempt) == (True, 4)
