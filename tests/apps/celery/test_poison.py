"""A message that a worker of Celery cannot read becomes a dead letter with its reason, and the worker goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from hourwheel.client import Api, Message
from tests.apps.celery.workers import SECONDS, Journal, Worker, application, entry_points, environment

TASK = "tests.apps.celery.shop.sell"
LINKS: dict[str, Any] = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}


def envelope(item: str, **changes: Any) -> dict[str, Any]:
    """Returns a task as Kombu sends it. ``changes`` replace its fields: the names of headers begin with ``h_``, those
    of properties with ``p_``."""
    headers: dict[str, Any] = {"task": TASK, "id": item, "eta": None, "retries": 0, "timelimit": [None, None]}
    properties: dict[str, Any] = {
        "delivery_info": {"exchange": "", "routing_key": "celery"},
        "body_encoding": None,
        "correlation_id": item,
    }
    fields: dict[str, Any] = {
        "body": json.dumps([[item], {}, LINKS]),
        "content-type": "application/json",
        "content-encoding": "utf-8",
    }
    for name, value in changes.items():
        kind, _, rest = name.partition("_")
        target = {"h": headers, "p": properties}.get(kind, fields)
        target[rest if target is not fields else name.replace("_", "-")] = value
    return {**fields, "headers": headers, "properties": properties}


def body(*parts: Any, **links: Any) -> str:
    return json.dumps([*parts, {**LINKS, **links}])


POISON: dict[str, dict[str, Any]] = {
    "content type": {"content_type": ["a"]},
    "content encoding": {"content_encoding": 5},
    "body not text": {"body": 5},
    "body not base64": {"body": "x", "p_body_encoding": "base64"},
    "body not decodable": {"body": "{"},
    "no body": {"body": None},
    "compression": {"h_compression": "gzip"},
    "unhashable compression": {"h_compression": ["gzip"]},
    "task": {"h_task": ["a"]},
    "unhashable id": {"h_id": ["a"]},
    "limits as texts": {"h_timelimit": ["1", "2"]},
    "one limit": {"h_timelimit": [5]},
    "endless limit": {"h_timelimit": [float("inf"), None]},
    "stamps": {"h_stamped_headers": [["a"]]},
    "empty eta": {"h_eta": ""},
    "replaced method": {"h__get_custom_headers": 5},
    "routing key": {"p_delivery_info": {"routing_key": 5}},
    "exchange": {"p_delivery_info": {"exchange": ["a"]}},
    "body is a number": {"body": "5"},
    "two parts": {"body": json.dumps([["x"], {}])},
    "arguments": {"body": body("x", {})},
    "names of arguments": {"body": body(["x"], [])},
    "links": {"body": json.dumps([["x"], {}, 5])},
    "errbacks": {"body": body(["x"], {}, errbacks=[5])},
    "chain": {"body": body(["x"], {}, chain=5)},
    "chord": {"body": body(["x"], {}, chord="x")},
    "old body": {"body": json.dumps({"task": TASK, "id": "x", "args": 5, "kwargs": {}})},
}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    return Journal(tmp_path_factory.mktemp("shop") / "journal")


@pytest.fixture(scope="module", params=["prefork", "threads"])
def worker(
    broker: str, journal: Journal, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("worker")
    env = environment(broker, journal.path, entry_points(folder / "entry-points"))
    started = Worker(
        "taker",
        folder / "log",
        env,
        "--pool",
        request.param,
        "--concurrency",
        "2",
        "--task-events",
        "--queues",
        "celery",
    )
    try:
        yield started.ready()
    finally:
        started.kill()


@pytest.mark.parametrize("kind", POISON)
def test_a_task_that_no_worker_can_read_becomes_a_dead_letter_with_its_reason(
    worker: Worker, broker: str, api: Api, journal: Journal, kind: str
) -> None:
    identity = f"{worker.log.parent.name}-{kind}".replace(" ", "-")
    api.produce("celery", [Message(json.dumps(envelope(identity, **POISON[kind])), id=identity)])
    with application(broker) as app:  # more tasks than the pool has places: none of them is lost
        for number in range(3):
            app.signature(TASK, args=[f"{identity}-{number}"]).delay()
    for number in range(3):
        journal.wait(f"{identity}-{number}", 1)
    assert worker.process.poll() is None
    give_up_at = monotonic() + SECONDS
    while not (dead := [letter for letter in api.list_dead("celery", "celery").messages if letter.id == identity]):
        assert monotonic() < give_up_at, worker.log.read_text()[-2_000:]
        api.pull("pause", "pause", "pause", wait_seconds=0.1)
    assert dead[0].detail, "the dead letter says why"
    assert journal.of(identity) == []
