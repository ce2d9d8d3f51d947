"""Workers of Celery on a server: the cases of Celery's integration tests that need no result backend."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time

import pytest
from celery import Celery, chain, group
from celery.canvas import Signature
from kombu.common import Broadcast
from kombu.exceptions import OperationalError

from hourwheel.client import Api, BadRequest, SendResult
from tests.apps.celery.workers import SECONDS, Journal, Worker, application, entry_points, environment

TASKS = "tests.apps.celery.shop"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shop")


@pytest.fixture(scope="module")
def journal(folder: Path) -> Journal:
    return Journal(folder / "journal")


@pytest.fixture(scope="module")
def env(broker: str, folder: Path, journal: Journal) -> dict[str, str]:
    return environment(broker, journal.path, entry_points(folder / "entry-points"))


@pytest.fixture(scope="module", autouse=True)
def worker(folder: Path, env: dict[str, str]) -> Iterator[Worker]:
    started = Worker(
        "main", folder / "log", env, "--pool", "prefork", "--concurrency", "2", "--task-events", "--queues", "celery"
    )
    try:
        yield started.ready()
    finally:
        started.kill()


@pytest.fixture
def app(broker: str) -> Iterator[Celery]:
    with application(broker) as made:
        yield made


def task(app: Celery, name: str, *args: object, **kwargs: object) -> Signature:
    return app.signature(f"{TASKS}.{name}", args=args, kwargs=kwargs, immutable=True)


def test_tasks_run(app: Celery, journal: Journal) -> None:
    for number in range(200):
        task(app, "sell", f"many-{number}").delay()
    for number in range(200):
        assert journal.wait(f"many-{number}", 1) == ["sold"]


def test_groups_and_chains_run(app: Celery, journal: Journal) -> None:
    group([task(app, "sell", f"group-{number}") for number in range(5)]).delay()
    chain([task(app, "add", number, 1, "chain") for number in range(3)]).delay()
    for number in range(5):
        journal.wait(f"group-{number}", 1)
    journal.wait("chain", 3)
    assert [words[2] for words in journal.words("chain")] == ["1", "2", "3"]


@pytest.mark.parametrize("how", ["countdown", "eta", "eta in another zone", "naive eta"])
def test_a_task_is_delayed_in_the_queue_and_runs_in_time(app: Celery, api: Api, journal: Journal, how: str) -> None:
    item, due = how.replace(" ", "-"), time() + 1
    eta = {
        "eta": datetime.fromtimestamp(due, UTC),
        "eta in another zone": datetime.fromtimestamp(due, UTC).astimezone(tz=None),
        "naive eta": datetime.fromtimestamp(due, UTC).replace(tzinfo=None),
    }
    options = {"countdown": 1} if how == "countdown" else {"eta": eta[how]}
    task(app, "stamp", item).apply_async(**options)
    assert api.pending("celery", hours=1).messages == 1
    journal.wait(item, 1)
    assert due <= float(journal.words(item)[0][2]) < due + SECONDS


def test_a_far_task_is_cancelled_by_its_scheduled_id(broker: str, api: Api) -> None:
    scheduled: dict[str, SendResult] = {}

    def remember(headers: dict[str, str], result: SendResult) -> None:
        scheduled[headers["id"]] = result

    with application(broker, on_scheduled=remember) as app:
        sent = task(app, "sell", "far").apply_async(countdown=731 * 86_400)
        with pytest.raises(BadRequest, match="732 days"):
            task(app, "sell", "too far").apply_async(countdown=733 * 86_400)
    identity = scheduled[sent.id].scheduled_id
    assert identity is not None
    assert api.cancel(identity).state == "cancelled"


def test_a_retry_with_a_countdown_is_delayed_in_the_queue(app: Celery, journal: Journal) -> None:
    task(app, "flaky", "unsteady", 2, 0.5).delay()
    assert journal.wait("unsteady", 3) == ["failed", "failed", "succeeded"]
    first, second, third = (float(words[3]) for words in journal.words("unsteady"))
    assert second - first >= 0.5
    assert third - second >= 0.5


def test_a_requeued_task_comes_again_and_says_so(app: Celery, journal: Journal) -> None:
    task(app, "returned", "back", requeue=True).delay()
    assert journal.wait("back", 2) == ["delivered", "redelivered"]


def test_rejected_and_unknown_tasks_become_dead_letters(app: Celery, api: Api, journal: Journal) -> None:
    rejected = task(app, "returned", "away", requeue=False).delay()
    unknown = app.send_task("nobody.knows")
    journal.wait("away", 1)
    task(app, "sell", "behind").delay()
    journal.wait("behind", 1)
    while len(dead := api.list_dead("celery", "celery").messages) < 2:
        api.pull("pause", "pause", "pause", wait_seconds=0.1)
    assert {each.id for each in dead} == {rejected.id, unknown.id}


def test_the_workers_are_inspected_and_controlled(app: Celery, worker: Worker) -> None:
    inspect = app.control.inspect(timeout=SECONDS, limit=1)
    assert inspect.ping() == {worker.name: {"ok": "pong"}}
    assert worker.name in inspect.stats()
    assert f"{TASKS}.sell" in inspect.registered()[worker.name]
    queues = inspect.active_queues()[worker.name]
    assert [queue["name"] for queue in queues] == ["celery"]
    answer = app.control.rate_limit(f"{TASKS}.add", "100/s", reply=True, timeout=SECONDS, limit=1)
    assert "ok" in answer[0][worker.name]


def test_a_queue_is_added_and_cancelled_by_remote_control(app: Celery, journal: Journal) -> None:
    app.control.add_consumer("extra", reply=True, timeout=SECONDS, limit=1)
    task(app, "sell", "extra").apply_async(queue="extra")
    journal.wait("extra", 1)
    app.control.cancel_consumer("extra", reply=True, timeout=SECONDS, limit=1)
    task(app, "sell", "nobody").apply_async(queue="extra")
    task(app, "sell", "after").delay()
    journal.wait("after", 1)
    assert journal.of("nobody") == []


def test_events_tell_of_tasks(app: Celery) -> None:
    seen: list[str] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(connection, handlers={"*": lambda event: seen.append(event["type"])})
        with receiver.consumer_context(wakeup=False) as (receiving, *_):
            task(app, "sell", "watched").delay()
            while not {"task-received", "task-started", "task-succeeded"} <= set(seen):
                receiving.drain_events(timeout=SECONDS)


def test_a_purge_drops_what_waits(app: Celery, api: Api) -> None:
    for number in range(3):
        task(app, "sell", f"purged-{number}").apply_async(queue="unused")
    with app.connection_for_write() as connection:
        assert app.amqp.TaskConsumer(connection, queues=[app.amqp.queues["unused"]]).purge() == 3
    task(app, "sell", "purged-later").apply_async(queue="unused", countdown=3_600)
    with app.connection_for_write() as connection:
        assert app.amqp.TaskConsumer(connection, queues=[app.amqp.queues["unused"]]).purge() == 1
        assert app.amqp.TaskConsumer(connection, queues=[app.amqp.queues["unused"]]).purge() == 0
    assert [message.state for message in api.list_subject_delayed("unused").messages] == ["cancelled"]
    lag = api.lag("unused", "celery")
    assert lag.waiting + lag.retrying == 0


def test_beat_sends_tasks_at_their_times(env: dict[str, str], folder: Path, journal: Journal) -> None:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        f"{TASKS}:beaten",
        "beat",
        "-s",
        str(folder / "beat"),
        "--pidfile=",
    ]
    with (folder / "beat.log").open("w") as log:
        beat = subprocess.Popen(command, env=env, cwd=Path.cwd(), stdout=log, stderr=log)
    try:
        journal.wait("beaten", 2)
    finally:
        beat.terminate()
        beat.wait(SECONDS)


def test_a_broadcast_queue_reaches_every_worker(
    app: Celery, env: dict[str, str], folder: Path, journal: Journal
) -> None:
    others = [
        Worker(name, folder / f"{name}.log", env, "--pool", "solo", "--queues", "news", "--without-mingle")
        for name in ("left", "right")
    ]
    try:
        for other in others:
            other.ready()
        app.send_task(f"{TASKS}.sell", ["news"], queue=Broadcast("news"))
        assert journal.wait("news", 2) == ["sold", "sold"]
    finally:
        for other in others:
            other.kill()


def test_a_server_that_is_away_is_an_operational_error() -> None:
    with application("hourwheel://127.0.0.1:1") as app, pytest.raises(OperationalError, match="cannot be reached"):
        task(app, "sell", "nowhere").apply_async(retry_policy={"max_retries": 1, "interval_start": 0})


def test_a_worker_stops_when_its_tasks_are_done(
    env: dict[str, str], folder: Path, app: Celery, journal: Journal
) -> None:
    """Tasks that it had prefetched run on another worker, at once."""
    go_on = folder / "go-on"
    leaving = Worker("leaving", folder / "leaving.log", env, "--pool", "solo", "--queues", "leave", "--without-mingle")
    try:
        leaving.ready()
        for number in range(3):
            task(app, "wait_for_file", str(go_on), f"leave-{number}").apply_async(queue="leave")
        journal.wait("leave-0", 1)
        leaving.process.terminate()
        go_on.touch()
        assert leaving.stop() == 0
    finally:
        leaving.kill()
    assert [journal.of(f"leave-{number}") for number in range(3)].count(["waiting", "waited"]) == 1
