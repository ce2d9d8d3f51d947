"""Runs a consumer process, which handles flights for its group and records each of them."""

import argparse
import logging
import time
from pathlib import Path
from zlib import crc32

from demo.flights import tail_number
from demo.history import Handled, write
from hourwheel.client import Consumer, Delivery


class NoTailNumber(Exception):
    """The audit cannot check a flight whose aircraft is unknown."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--consumer", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--lease", type=int, default=30)
    parser.add_argument("--work", type=float, default=0, help="seconds that handling a message takes")
    parser.add_argument("--strict", action="store_true", help="fail on flights without a tail number")
    options = parser.parse_args()
    logging.getLogger("hourwheel").setLevel(logging.CRITICAL)  # failures are part of the demo
    consumer = Consumer(
        options.url, "flights", options.group, consumer_id=options.consumer, lease_seconds=options.lease, wait_seconds=2
    )
    with (options.folder / f"{options.consumer}.jsonl").open("a") as file:

        @consumer.handler
        def handle(message: Delivery) -> None:
            body = str(message.body)
            fails = options.strict and not tail_number(body)
            crc = crc32(body.encode())
            write(file, Handled(options.consumer, message.id, message.attempt, not fails, crc, time.time()))
            time.sleep(options.work)
            if fails:
                raise NoTailNumber

        consumer.run()


if __name__ == "__main__":
    main()
