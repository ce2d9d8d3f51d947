"""Defines an application of Celery for the tests. Its tasks append a line to a file, for there is no result backend.

``SHOP_BROKER`` is its broker, ``SHOP_JOURNAL`` the file, ``SHOP_OPTIONS`` the transport options as JSON.
"""

from __future__ import annotations

import json
import os
import time

from celery import Celery, Task
from celery.exceptions import Reject
from kombu import Queue
from kombu.common import Broadcast

app = Celery(
    "shop",
    broker=os.environ.get("SHOP_BROKER"),
    broker_transport_options=json.loads(os.environ.get("SHOP_OPTIONS", "{}")),
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
    task_queues=[Queue("celery"), Broadcast("news")],
)


def note(*words: object) -> None:
    line = " ".join(str(word) for word in words) + "\n"
    journal = os.open(os.environ["SHOP_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, line.encode())
    os.close(journal)


@app.task
def sell(item: str) -> None:
    note("sold", item)


@app.task
def stamp(item: str) -> None:
    """Notes when it runs, in seconds."""
    note("stamped", item, time.time())


@app.task(bind=True, max_retries=5)
def flaky(self: Task, item: str, fails: int, countdown: float) -> None:
    if self.request.retries < fails:
        note("failed", item, self.request.retries, time.time())
        raise self.retry(countdown=countdown)
    note("succeeded", item, self.request.retries, time.time())


@app.task(bind=True, acks_late=True)
def returned(self: Task, item: str, *, requeue: bool) -> None:
    redelivered = bool(self.request.delivery_info["redelivered"])
    note("redelivered" if redelivered else "delivered", item)
    if not redelivered:
        raise Reject("not now", requeue=requeue)


@app.task(acks_late=True)
def wait_for_file(path: str, item: str) -> None:
    """Runs until the file exists."""
    note("waiting", item)
    while not os.path.exists(path):
        time.sleep(0.01)
    note("waited", item)


@app.task
def add(left: int, right: int, item: str) -> int:
    note("added", item, left + right)
    return left + right


beaten = app
beaten.conf.beat_schedule = {"beaten": {"task": "tests.apps.celery.shop.sell", "schedule": 0.3, "args": ["beaten"]}}


@app.task(acks_late=True)
def end_at_poison(item: str) -> None:
    if item == "poison":
        os._exit(9)
    note("handled", item)
