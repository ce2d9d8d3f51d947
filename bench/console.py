"""Measures the cost of the console's overview for a server with many subjects: ``python -m bench.console``.

Fills a data directory with 1,000 subjects of 10 groups, and starts a server on it. Measures the first page of 100
subjects, a page by a number, and the time until the numbers of all subjects are read. Measures the CPU of the server
while a page polls, beside its CPU without a page.
"""

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.limits import cpu_seconds
from bench.measures import median
from bench.serving import Served, serving_data
from hourwheel.client import Api
from hourwheel.context import Context
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.offline import opened
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement

_POLL_SECONDS = 2.0


def fill(data: Path, subjects: int, groups: int) -> None:
    """Fills a data directory: five messages in each subject. Of the groups, every second one has settled what it
    pulled. One transaction for each subject."""
    with opened(data) as context:
        for number in range(subjects):
            context.atomically(partial(_fill_subject, subject=f"subject-{number:05}", groups=groups))


def _fill_subject(context: Context, subject: str, groups: int) -> None:
    deployment = Deployment(context)
    deployment.produce(subject, [NewMessage(body=f"message {index}") for index in range(5)])
    for group in (f"group-{number}" for number in range(groups)):
        request = PullRequest(consumer="bench", max_messages=1 + int(group[-1]) % 5, lease_seconds=43_200)
        pulled = deployment.pull(subject, group, request)
        if int(group[-1]) % 2:
            deployment.settle(subject, group, [Settlement(receipt=pull.receipt) for pull in pulled.pulls])


def milliseconds(work: Any) -> float:
    began = time.perf_counter()
    work()
    return round((time.perf_counter() - began) * 1_000, 1)


def core_percent(served: Served, seconds: float, poll: Any = None) -> float:
    """Returns the CPU of the server in per cent of one core, while ``poll`` is called every two seconds."""
    began, before = time.perf_counter(), cpu_seconds(served.pid)
    while time.perf_counter() - began < seconds:
        if poll is not None:
            poll()
        time.sleep(_POLL_SECONDS)
    return round((cpu_seconds(served.pid) - before) / (time.perf_counter() - began) * 100, 2)


def measured(served: Served, seconds: float) -> dict[str, float]:
    """Measures a server that has just started."""
    with Api(served.url) as api:
        api.health()
        row = {
            "first_page_ms": milliseconds(api.overview),
            "next_page_ms": median([milliseconds(api.overview) for _ in range(5)]),
            "first_by_number_ms": milliseconds(lambda: api.overview(sort="waiting")),
        }
        began = time.perf_counter()
        while not api.overview(sort="waiting").complete:
            time.sleep(_POLL_SECONDS)
        row["complete_seconds"] = round(time.perf_counter() - began, 1)
        row["by_number_ms"] = median([milliseconds(lambda: api.overview(sort="waiting")) for _ in range(5)])
        row["idle_core_percent"] = core_percent(served, seconds)
        row["by_name_core_percent"] = core_percent(served, seconds, api.overview)
        row["by_number_core_percent"] = core_percent(served, seconds, lambda: api.overview(sort="waiting"))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0, help="of each window of CPU; a sweep comes each minute")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder:
        data = Path(folder) / "data"
        fill(data, options.subjects, options.groups)
        with serving_data(data) as served:
            row = measured(served, options.seconds)
    for name, value in row.items():
        print(f"{name:24} {value}")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
