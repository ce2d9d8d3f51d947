"""Runs a consumer in a process of its own.

``python -m bench.listener URL SUBJECT MESSAGES SECONDS`` prints, as JSON, how many milliseconds late each delayed
message came (``late_ms``). It also prints the number of messages that were due before they were sent and so never
waited (``sent_at_once``). It stops when all have come or time is up.
"""

import json
import sys
import time

from hourwheel.client import Api, Settlement


def listen(url: str, subject: str, messages: int, seconds: float) -> tuple[list[float], int]:
    """Returns the lateness of each delayed message in milliseconds, and the number of messages that did not wait."""
    late: list[float] = []
    sent_at_once = 0
    settle: list[Settlement] = []
    until = time.monotonic() + seconds
    with Api(url) as api:
        while len(late) + sent_at_once < messages and time.monotonic() < until:
            answer = api.pull(subject, "bench", consumer="bench", max_messages=1_000, wait_seconds=1, settle=settle)
            now = time.time()
            settle = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
            for pull in answer.pulls:
                dues = [message.due_at for message in pull.messages if message.due_at is not None]
                late += [(now - due.timestamp()) * 1_000 for due in dues]
                sent_at_once += len(pull.messages) - len(dues)
    return late, sent_at_once


if __name__ == "__main__":
    url, subject, messages, seconds = sys.argv[1:]
    print("listening", flush=True)
    late_ms, at_once = listen(url, subject, int(messages), float(seconds))
    print(json.dumps({"late_ms": late_ms, "sent_at_once": at_once}))
