"""Defines an application whose tasks do nothing. ``BENCH_BROKER`` and ``BENCH_OPTIONS`` say on which broker."""

import json
import os
import time

from celery import Celery

app = Celery(
    "bench",
    broker=os.environ.get("BENCH_BROKER"),
    broker_transport_options=json.loads(os.environ.get("BENCH_OPTIONS", "{}")),
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=4,
)


@app.task
def nothing(number: int) -> None:
    pass


@app.task
def note() -> None:
    """Notes when it runs, by the clock that all processes of the machine share."""
    with open(os.environ["BENCH_NOTES"], "a") as notes:
        notes.write(f"{time.monotonic()}\n")
