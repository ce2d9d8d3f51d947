"""A month of real flights through a durable queue: three groups, a consumer killed in the middle, dead letters.

The verdict is computed from what producer and consumers wrote down, not from counters of the server.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from demo import history
from demo.flights import Flight, january, tail_number
from demo.screen import Screen, lines_in
from hourwheel.client import Api, DeadSelection, Producer

GROUPS = {"boards": 4, "billing": 2, "audit": 1}
BATCH = 250
KILL_AFTER = 2_000
LEASE_SECONDS = {"boards": 30, "billing": 5, "audit": 30}
WORK_SECONDS = {"boards": 0.0, "billing": 0.0004, "audit": 0.0}
PATIENCE_SECONDS = 75.0


@dataclass
class Stage:
    """The processes that take part. All of them end with the demo."""

    folder: Path
    url: str = ""
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def serve(self) -> None:
        arguments = ["-m", "hourwheel", "serve", "--data", str(self.folder / "data"), "--port", "0"]
        server = self._start("server", arguments, stdout=subprocess.PIPE)
        assert server.stdout is not None
        line = server.stdout.readline()
        found = re.search(r"http://\S+?(?=,|\s|$)", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line.strip()}")
        self.url = found.group()

    def consume(self, group: str, consumer: str, *, strict: bool = False) -> None:
        arguments = ["-m", "demo.worker", "--url", self.url, "--group", group, "--consumer", consumer]
        arguments += ["--folder", str(self.folder), "--lease", str(LEASE_SECONDS[group])]
        arguments += ["--work", str(WORK_SECONDS[group])]
        self._start(consumer, arguments + ["--strict"] * strict)

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=20)

    def stop_all(self) -> None:
        for name in [name for name in self.processes if name != "server"]:
            self.processes[name].send_signal(signal.SIGTERM)
        for name in list(self.processes):
            self.stop(name)

    def _start(self, name: str, arguments: list[str], *, stdout: int | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, *arguments], stdout=stdout, text=True, env={**os.environ})
        self.processes[name] = process
        return process


def send(stage: Stage, flights: list[Flight], progress: Callable[[int], None]) -> tuple[dict[str, str], float]:
    """Sends all flights; the bodies by the ids under which they were accepted, and the seconds it took."""
    accepted: dict[str, str] = {}
    began = time.perf_counter()
    with Producer(stage.url, subject="flights", batch_messages=BATCH) as producer:
        futures = []
        for number, flight in enumerate(flights, 1):
            futures.append(producer.send(flight.body, key=flight.carrier))
            if number % 500 == 0:
                progress(number)
        for future, flight in zip(futures, flights, strict=True):
            accepted[future.result().id] = flight.body
    progress(len(flights))
    return accepted, time.perf_counter() - began


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits, within reason. What never comes is told by the verdict."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            print(f"gave up waiting: {what}", file=sys.stderr)
            return
        time.sleep(0.1)


def dead_ids(api: Api, group: str) -> set[str]:
    """The ids of the messages that are dead letters of the group now."""
    found: set[str] = set()
    after = None
    while True:
        page = api.list_dead("flights", group, after=after)
        found |= {message.id for message in page.messages}
        if page.next is None:
            return found
        after = page.next


def perform(stage: Stage, screen: Screen, flights: list[Flight]) -> list[history.Account]:
    """The story; the groups' accounts at its end."""
    api = Api(stage.url)
    for group in GROUPS:
        api.put_group("flights", group, max_attempts=3 if group == "audit" else 16)
    for group, count in GROUPS.items():
        for number in range(1, count + 1):
            stage.consume(group, f"{group}-{number}", strict=group == "audit")

    def shown() -> None:
        screen.show(**{group: min(lines_in(stage.folder, group), len(flights)) for group in GROUPS})

    def drained(*groups: str) -> bool:
        shown()
        lags = [api.lag("flights", group) for group in groups]
        return all(lag.waiting == lag.in_flight == lag.retrying == 0 for lag in lags)

    def half_way() -> bool:
        shown()
        return lines_in(stage.folder, "billing-2") >= KILL_AFTER

    until(
        lambda: all((stage.folder / f"{name}.jsonl").exists() for name in stage.processes if name != "server"),
        "consumers",
    )
    accepted, seconds = send(stage, flights, lambda count: screen.show(sent=count))
    screen.say(f"sent {len(accepted):,} flights in {seconds:.1f} s ({len(accepted) / seconds:,.0f}/s)")
    until(half_way, "billing-2 in the middle of its work")
    stage.stop("billing-2", signal.SIGKILL)
    screen.say("killed billing-2 with SIGKILL: its lease ends in 5 s, billing-1 takes over")
    until(lambda: drained("audit"), "the audit's retries to end")
    died = dead_ids(api, "audit")
    screen.say(f"audit gave up {len(died)} flights without a tail number after 3 attempts; deploying the fix")
    stage.stop("audit-1")
    stage.consume("audit", "audit-2")
    screen.say(f"redrove {api.redrive('flights', 'audit', DeadSelection.everything())} dead letters")
    until(lambda: drained(*GROUPS), "all groups to be done")
    dead = {group: dead_ids(api, group) for group in GROUPS}
    api.close()
    stage.stop_all()
    untailed = {message for message, body in accepted.items() if not tail_number(body)}
    return [
        history.account(
            group,
            accepted,
            history.read(stage.folder, group),
            died=died if group == "audit" else dead[group],
            dead=dead[group],
            killed="billing-2",
            expected_dead=untailed if group == "audit" else set(),
        )
        for group in GROUPS
    ]


def main() -> int:
    began = time.perf_counter()
    flights = january()
    with tempfile.TemporaryDirectory(prefix="hourwheel-demo-") as folder:
        stage = Stage(Path(folder))
        screen = Screen(len(flights), list(GROUPS))
        try:
            stage.serve()
            screen.say(f"serving on {stage.url}; {len(flights):,} flights of January 2013 to send")
            with screen.running():
                accounts = perform(stage, screen, flights)
        finally:
            stage.stop_all()
    screen.table(accounts)
    wrong = {one.group: list(one.wrong) for one in accounts if one.wrong}
    if any(one.accepted != len(flights) for one in accounts):
        wrong["producer"] = [f"accepted {accounts[0].accepted} of {len(flights)}"]
    for group, sentences in wrong.items():
        screen.say(f"[red]{group}: {'; '.join(sentences)}[/red]")
    verdict = "lost or unaccounted for" if wrong else "every message is accounted for"
    screen.say(f"[{'red' if wrong else 'green'}]{verdict}[/]")
    figures = {
        "verdict": "failed" if wrong else "ok",
        "seconds": round(time.perf_counter() - began, 1),
        "flights": len(flights),
        "groups": {
            one.group: {
                name: getattr(one, name)
                for name in ("accepted", "delivered", "redelivered", "died", "dead", "pending", "per_second")
            }
            for one in accounts
        },
        "wrong": wrong,
    }
    print(json.dumps(figures))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
