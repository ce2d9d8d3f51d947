"""A consumer in a process of its own.

``python -m bench.listener URL SUBJECT MESSAGES SECONDS`` prints, as JSON, how many milliseconds late each delayed
message came. It stops when all have come or time is up.
"""

import json
import sys
import time

from hourwheel.client import Api, Settlement


def listen(url: str, subject: str, messages: int, seconds: float) -> list[float]:
    found: list[float] = []
    settle: list[Settlement] = []
    until = time.monotonic() + seconds
    with Api(url) as api:
        while len(found) < messages and time.monotonic() < until:
            answer = api.pull(
                subject, "bench", consumer="bench", max_messages=1_000, wait_seconds=1, settle=settle or None
            )
            now = time.time()
            settle = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
            for pull in answer.pulls:
                for message in pull.messages:
                    assert message.due_at is not None
                    found.append((now - message.due_at.timestamp()) * 1_000)
    return found


if __name__ == "__main__":
    url, subject, messages, seconds = sys.argv[1:]
    print("listening", flush=True)
    print(json.dumps(listen(url, subject, int(messages), float(seconds))))
