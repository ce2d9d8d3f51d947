"""Runs the gate: a consumer process that receives boarding calls and records the time of each receipt."""

import argparse
import logging
import time
from pathlib import Path

from demo.boarding import Seen
from demo.history import write
from hourwheel.client import Consumer, Delivery


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--consumer", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--lease", type=int, required=True)
    options = parser.parse_args()
    logging.getLogger("hourwheel").setLevel(logging.CRITICAL)  # the death of the server is part of the demo
    consumer = Consumer(
        options.url, "boarding", "gates", consumer_id=options.consumer, lease_seconds=options.lease, wait_seconds=2
    )
    with (options.folder / f"{options.consumer}.jsonl").open("a") as file:

        @consumer.handler
        def receive(message: Delivery) -> None:
            at_ms = time.time_ns() / 1e6
            due_ms = 0 if message.due_at is None else round(message.due_at.timestamp() * 1_000)
            write(file, Seen(message.id, message.queue, message.offset, message.attempt, due_ms, at_ms))

        consumer.run()


if __name__ == "__main__":
    main()
