"""Measures a group whose tag filter takes 1 % of the messages, beside a group that takes all of them.

Run it alone with ``python -m bench.filters``; ``make bench`` runs it as well.
"""

import json
import time

from bench import measures
from bench.measures import median
from bench.serving import server
from hourwheel.client import Api, Message, Producer, Settlement, TagFilter

_TAGS = 10
_SHARE = 100


def fill(url: str, subject: str, messages: int, batch: int) -> None:
    """Sends messages with one of ten tags each, in batches; one of a hundred has the tag ``rare`` instead."""
    texts = measures.bodies(batch)
    with Producer(url, subject=subject) as producer:
        for first in range(0, messages, batch):
            producer.send_batch([Message(text, tags=[_tag(first + at)]) for at, text in enumerate(texts)])


def _tag(number: int) -> str:
    # Another position in each batch, so that no row looks like the one before.
    return "rare" if (number * 7) % _SHARE == number // _SHARE % _SHARE else f"tag-{number % _TAGS}"


def passed_per_second(url: str, subject: str, group: str, messages: int) -> float:
    """Pulls and settles as one consumer until the group is done. Returns the messages of the subject that the group
    passed in a second."""
    settle: list[Settlement] = []
    began = time.perf_counter()
    with Api(url) as api:
        while True:
            pulls = api.pull(subject, group, "bench", max_messages=1_000, settle=settle).pulls
            if not pulls:
                return messages / (time.perf_counter() - began)
            settle = [Settlement(receipt=pull.receipt) for pull in pulls]


def filtered(url: str, messages: int, rounds: int, batch: int = 100) -> dict[str, float]:
    """Returns the medians of rounds that take turns, and the median of their ratios."""
    subject = f"filtered-{batch}"
    fill(url, subject, messages, batch)
    everything, some = [], []
    with Api(url) as api:
        for number in range(rounds):
            api.put_group(subject, f"all-{number}")
            api.put_group(subject, f"rare-{number}", filter=TagFilter(tags_any=("rare",)))
            everything.append(passed_per_second(url, subject, f"all-{number}", messages))
            some.append(passed_per_second(url, subject, f"rare-{number}", messages))
    return {
        "all_per_s": round(median(everything)),
        "filtered_per_s": round(median(some)),
        "ratio": round(median([b / a for a, b in zip(everything, some, strict=True)]), 2),
    }


def by_batch(url: str, messages: int, rounds: int) -> dict[str, dict[str, float]]:
    return {f"batch {batch}": filtered(url, messages, rounds, batch) for batch in (10, 100, 1_000)}


if __name__ == "__main__":
    with server() as url:
        print(json.dumps(by_batch(url, 400_000, 5)))
