"""Producers and consumers, as the client makes them behave towards the API."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import cycle
from typing import Any

from demo.flights import january
from hourwheel.client.transport.backoff import THROTTLED_SECONDS, pause_seconds
from hourwheel.times import rfc3339
from tests.load.deployment import SimulatedDeployment

_WAIT_SECONDS = 20
_GIVES_UP_SECONDS = 120.0


@dataclass
class Samples:
    """What the actors have seen, in milliseconds. ``delivered``: from the call of the producer to the answer with the
    message; ``late``: from the time at which a delayed message is due to that answer."""

    produced: list[float] = field(default_factory=list)
    pulled: list[float] = field(default_factory=list)
    delivered: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def undelivered(self) -> int:
        return self.counts["sent"] - self.counts["received"]


@cache
def _flights() -> list[str]:
    return [flight.body for flight in january()]


class Texts:
    """Returns bodies with the times that a consumer measures by: flights as JSON, 327 bytes each, as in ``make cost``.
    No two batches are equal."""

    def __init__(self) -> None:
        self._pool: Iterator[str] = cycle(_flights())

    def body(self, sent: float, due: float) -> str:
        return f"{sent:.1f} {due:.1f} {next(self._pool)}"


@dataclass(frozen=True)
class Traffic:
    """Makes the actors of one deployment."""

    deployment: SimulatedDeployment
    texts: Texts = field(default_factory=Texts)

    def producer(
        self,
        subject: str,
        rate: float,
        samples: Samples,
        *,
        batch: int = 1,
        delay_seconds: Callable[[], float] | None = None,
    ) -> None:
        """Sends ``rate`` batches a second at random times. ``delay_seconds`` gives the delay of each message."""
        machine = self.deployment.machine

        def live() -> None:
            while True:
                machine.sleep(machine.rng.expovariate(rate))
                machine.spawn(lambda: self.send(subject, batch, samples, delay_seconds))

        machine.spawn(live)

    def send(
        self, subject: str, batch: int, samples: Samples, delay_seconds: Callable[[], float] | None = None
    ) -> None:
        """Sends one batch, and repeats it until it is stored."""
        machine = self.deployment.machine
        began = machine.now
        messages: list[dict[str, Any]] = []
        for _ in range(batch):
            due = 0.0 if delay_seconds is None else began + delay_seconds() * 1_000
            message: dict[str, Any] = {"body": self.texts.body(began, due)}
            if due:
                message["deliver_at"] = rfc3339(int(due))
            messages.append(message)
        for attempt in range(1_000):
            status, _ = self.deployment.request("POST", f"/v1/subjects/{subject}/messages", {"messages": messages})
            samples.counts[f"produce {status}"] += 1
            if status == 200:
                samples.produced.append(machine.now - began)
                samples.counts["sent"] += batch
                return
            if machine.now - began > _GIVES_UP_SECONDS * 1_000:
                samples.counts["given up"] += batch
                return
            self._pause(attempt, status)

    def consumer(
        self,
        subject: str,
        group: str,
        name: str,
        samples: Samples,
        *,
        messages: int = 1,
        handling_ms: float = 0.0,
        dozes: bool = False,
    ) -> None:
        """Pulls up to ``messages`` at a time, handles all of them in ``handling_ms``, and acknowledges them in the next
        pull. With ``dozes`` it waits at the wake-up queue of its group when it is told to."""
        machine = self.deployment.machine
        path = f"/v1/subjects/{subject}/groups/{group}/pull"

        def live() -> None:
            machine.sleep(machine.rng.random() * (_WAIT_SECONDS if dozes else 0.1))
            receipts: list[str] = []
            failures = 0
            state, idle_since = "able", machine.now
            while True:
                asked: dict[str, Any] = {"consumer": name, "max_messages": messages, "wait_seconds": _WAIT_SECONDS}
                if receipts:
                    asked["settle"] = [{"receipt": receipt} for receipt in receipts]
                if dozes:
                    asked |= {"wakeup": state, "idle_seconds": (machine.now - idle_since) / 1_000}
                began = machine.now
                status, answer = self.deployment.request("POST", path, asked)
                samples.counts[f"pull {status}"] += 1
                if status != 200:
                    failures += 1
                    self._pause(failures, status)
                    continue
                failures, state = 0, "able"
                receipts = [pulled["receipt"] for pulled in answer["pulls"]]
                if receipts:
                    samples.pulled.append(machine.now - began)
                    self._received(answer["pulls"], samples)
                    machine.wait(handling_ms)
                    idle_since = machine.now
                elif wakeup := answer.get("wakeup"):
                    state = "woken" if self.deployment.queues.receive(wakeup["url"], wakeup["wait_seconds"]) else "able"
                else:
                    machine.sleep(answer.get("next_pull_seconds", 0.0))

        machine.spawn(live)

    def _received(self, pulls: list[dict[str, Any]], samples: Samples) -> None:
        now = self.deployment.machine.now
        for pulled in pulls:
            samples.counts["received"] += len(pulled["messages"])
            for message in pulled["messages"]:
                sent, due, _ = message["body"].split(" ", 2)
                if float(due):
                    samples.late.append(now - float(due))
                else:
                    samples.delivered.append(now - float(sent))

    def _pause(self, attempt: int, status: int) -> None:
        longest = THROTTLED_SECONDS if status in (429, 503) else 5.0
        self.deployment.machine.sleep(pause_seconds(attempt, self.deployment.ids, longest_seconds=longest))
