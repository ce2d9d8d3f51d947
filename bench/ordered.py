"""Measures ordered groups beside unordered ones, on one queue of one server, in turns.

`python -m bench.ordered` runs this measurement alone.
"""

import threading
import time
from zlib import crc32

from bench.measures import median
from bench.serving import server
from hourwheel.client import Api, Message, Settlement

_CONSUMERS = 8
_PULL = 100


def compared(url: str, keys: int, messages: int, rounds: int) -> dict[str, float]:
    """Returns the messages/s that consumers pull and settle from one queue with this number of keys, unordered and
    ordered; the ratio is the median of each round's own."""
    unordered, ordered = [], []
    with Api(url) as api:
        for turn in range(rounds):
            subject = f"ordered-{keys}-{turn}"
            for group in ("unordered", "ordered"):
                api.put_group(subject, group, ordered=group == "ordered")
            for start in range(0, messages, 500):
                api.produce(subject, [_message(number, keys) for number in range(start, start + 500)])
            unordered.append(_pulled(url, subject, "unordered", messages))
            ordered.append(_pulled(url, subject, "ordered", messages))
    ratios = [one / other for one, other in zip(ordered, unordered, strict=True)]
    return {
        "unordered_per_s": round(median(unordered)),
        "ordered_per_s": round(median(ordered)),
        "ratio": round(median(ratios), 3),
    }


def _message(number: int, keys: int) -> Message:
    """Returns a message with one of these keys, in no regular order, and the same in each run."""
    return Message(body=str(number), key=f"key-{crc32(str(number).encode()) % keys}")


def _pulled(url: str, subject: str, group: str, messages: int) -> float:
    """Pulls until the group has got all messages; each pull settles the one before. Returns the messages/s, up to the
    last message."""
    left, last, lock = messages, 0.0, threading.Lock()

    def consume(name: str) -> None:
        nonlocal left, last
        with Api(url) as api:
            settle: list[Settlement] = []
            while left > 0:
                answer = api.pull(subject, group, name, max_messages=_PULL, wait_seconds=1, settle=settle)
                settle = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
                with lock:
                    left -= sum(len(pull.messages) for pull in answer.pulls)
                    last = time.perf_counter() if answer.pulls else last

    threads = [threading.Thread(target=consume, args=(f"consumer-{number}",)) for number in range(_CONSUMERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return messages / (last - began)


if __name__ == "__main__":
    with server() as address:
        print(compared(address, 1_000, 100_000, 5))
