"""Compares busy consumers with and without wake-up queues, and counts the calls of busy producers to SQS.

Runs the code of the functions on a store in memory, in turns. A model clock passes 40 ms with each message, so that the
steps run through the minutes in which a group that dozed becomes busy, and leaves the list.
"""

import json
import time
from collections.abc import Sequence
from typing import Any

from aws_lambda_powertools import Logger
from rich.console import Console
from rich.table import Table

from bench.cost.clock import ModelClock
from bench.cost.meter import DYNAMODB_SECONDS, SQS_SECONDS, CountedQueues, CountedTimers, Meter
from bench.measures import bodies, median
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.api.boundary import Boundary
from hourwheel.api.events import Function
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.router import Match, Router, make_event
from hourwheel.context import Context
from hourwheel.deployment.deployment import Deployment
from hourwheel.ports.storage import Store
from hourwheel.system import SystemIds

ROUNDS, STEPS = 25, 500
STEP_SECONDS = 0.04
_IDLE_SECONDS = 1e6  # longer ago than anything that happens here
FUNCTIONS: dict[str, Function] = {"produce": produce, "pull": pull}
MESSAGES, PULL = "/v1/subjects/orders/messages", "/v1/subjects/orders/groups/billing/pull"
PERIODS = {"first_10_s": (0, 10), "until_400_s": (10, 400), "later": (410, ROUNDS * STEPS * STEP_SECONDS)}
"""In the first one the group still counts as idle, in the second one as busy; in the third one it has left the list."""


class CountedStore:
    """A store that counts its requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.requests += 1
            return call(*args, **kwargs)

        return counted


class Deployed:
    """The functions produce and pull, each a process of its own, with one producer and one consumer."""

    def __init__(self, *, wake: bool) -> None:
        self.clock, self.store, self._wake = ModelClock(), CountedStore(MemoryStore()), wake
        self._blobs, self._meter, self._router = MemoryBlobs(), Meter(self.clock), Router()
        self._queues = CountedQueues(self._meter)
        self._processes = {name: Boundary(self._cell(), Logger(service=f"waking-{name}-{wake}")) for name in FUNCTIONS}
        (self._body,) = bodies(1)
        self._receipt: str | None = None
        self.wakeups: list[float] = []
        """When each wake-up was sent, in seconds."""
        self.step()
        self._take(idle_seconds=0.0)
        if wake:
            self._doze()
        self.dozed_at = self.clock.elapsed_ms() / 1_000
        self.store.requests = 0

    def _cell(self) -> Deployment:
        return Deployment(
            Context(
                store=self.store,
                blobs=self._blobs,
                clock=self.clock,
                ids=SystemIds(),
                wakeups=PollingWakeups(self.clock),
                meter=CountingMeter(),
                timers=CountedTimers(self._meter),
                wakeup_queues=self._queues if self._wake else None,
            )
        )

    def step(self) -> None:
        """Sends a message, and takes it with the settlement of the one before."""
        wakeups = self._queues.wakeups
        self._call("produce", MESSAGES, {"messages": [{"body": self._body}]})
        self.wakeups += [self.clock.elapsed_ms() / 1_000] * (self._queues.wakeups - wakeups)
        (pulled,) = self._take(idle_seconds=STEP_SECONDS)["pulls"]
        self._receipt = pulled["receipt"]
        self.clock.wait(STEP_SECONDS)

    def per_cpu_second(self, steps: int) -> float:
        """Returns how many messages were sent and taken in a second of CPU time."""
        began = time.process_time()
        for _ in range(steps):
            self.step()
        return steps / (time.process_time() - began)

    def sent_per_second(self, first: float, last: float) -> float:
        """Returns the wake-ups a second between these seconds after the group dozed."""
        return sum(first <= at - self.dozed_at < last for at in self.wakeups) / (last - first)

    def _doze(self) -> None:
        answer = self._take(idle_seconds=_IDLE_SECONDS)
        while "wakeup" not in answer:
            self.clock.wait(answer["next_pull_seconds"])
            answer = self._take(idle_seconds=_IDLE_SECONDS)

    def _take(self, idle_seconds: float) -> Any:
        asked: dict[str, Any] = {"consumer": "c1", "idle_seconds": idle_seconds, "wakeup": "able"}
        if self._receipt is not None:
            asked["settle"] = [{"receipt": self._receipt}]
        self._receipt = None
        return self._call("pull", PULL, asked)

    def _call(self, function: str, path: str, body: Any) -> Any:
        match = self._router.find("POST", path)
        assert isinstance(match, Match), path
        data = json.dumps(body).encode()
        event = make_event(match, path=path, query="", headers=(), body=data, request_id="r-1", source="127.0.0.1")
        response = self._processes[function].answer(FUNCTIONS[function], event, None)
        assert response["statusCode"] == 200, response
        return json.loads(response["body"])


def compared() -> dict[str, Any]:
    """Returns the median of the ratios of rounds that take turns, and the counts of all rounds."""
    off, on = Deployed(wake=False), Deployed(wake=True)
    pairs = [(off.per_cpu_second(STEPS), on.per_cpu_second(STEPS)) for _ in range(ROUNDS)]
    messages = ROUNDS * STEPS
    return {
        "off_per_cpu_s": round(median([pair[0] for pair in pairs])),
        "on_per_cpu_s": round(median([pair[1] for pair in pairs])),
        "on_of_off": round(median([pair[1] / pair[0] for pair in pairs]), 3),
        "on_of_off_with_requests": round(median(_seconds(off, pairs, 0)) / median(_seconds(on, pairs, 1)), 3),
        "store_requests_of_a_message_off": round(off.store.requests / messages, 3),
        "store_requests_of_a_message_on": round(on.store.requests / messages, 3),
        "sqs_calls_per_s": {name: round(on.sent_per_second(*period), 2) for name, period in PERIODS.items()},
    }


def _seconds(deployed: Deployed, pairs: Sequence[tuple[float, float]], column: int) -> list[float]:
    """Returns the seconds of a message in each round: CPU time, and the round trips that it waits for on AWS."""
    messages = len(pairs) * STEPS
    waited = deployed.store.requests * DYNAMODB_SECONDS + len(deployed.wakeups) * SQS_SECONDS
    return [1 / pair[column] + waited / messages for pair in pairs]


def main() -> None:
    metrics = compared()
    table = Table("", "", title="a busy consumer with wake-up queues, and without")
    for name, value in metrics.items():
        table.add_row(name.replace("_", " "), str(value))
    Console().print(table)
    print(json.dumps(metrics))


if __name__ == "__main__":
    main()
