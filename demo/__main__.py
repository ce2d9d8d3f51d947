"""Plays the demo: a month of real flights goes through a durable queue, in three acts.

First three groups get every flight; a consumer is killed in the middle, and there are dead letters. Then the month
passes in about a minute: every flight has a delayed boarding call, the calls of cancelled flights are cancelled, and
the server is killed. At last Spark archives and reconciles all messages. The result is computed from the records of
producers and consumers, not from counters of the server.
"""

import argparse
import dataclasses
import json
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.markup import escape

from demo import groups, history, lake, month
from demo.flights import DAYS, Flight, january
from demo.lateness import summary
from demo.screen import Screen
from demo.stage import Stage


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo")
    parser.add_argument("--days", type=int, choices=range(1, DAYS + 1), default=DAYS, metavar="N", help="of the month")
    parser.add_argument("--keep", action="store_true", help="serve the data of the demo afterwards, until Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hourwheel-demo-") as folder:
        stage, screen = Stage(Path(folder)), Screen()
        try:
            status = perform(stage, screen, options.days)
            if options.keep:
                keep(stage, screen)
        finally:
            stage.stop_all()
    return status


def perform(stage: Stage, screen: Screen, days: int) -> int:
    """Plays the three acts, prints the result and returns the exit status. Leaves the server stopped."""
    began = time.perf_counter()
    flights = january(days)
    lacking = lake.missing()
    archived: lake.Account | None = None
    stage.serve()
    screen.say(f"serving on {stage.url}; {len(flights):,} flights of January 2013 to send")
    screen.say(f"the console: {stage.console}")
    accounts, seconds = groups.perform(stage, screen, flights)
    screen.table(accounts)
    report = month.perform(stage, screen, flights, days, lead_seconds=3 + 3 * seconds)
    stage.stop_all()
    if not lacking:
        archived = lake.perform(screen, stage.data)
    show_report(screen, report)
    wrong = faults(flights, accounts, report)
    if archived is not None:
        wrong |= archived_faults(archived, flights, report)
    for part, sentences in wrong.items():
        screen.say(f"[red]{part}: {escape('; '.join(sentences))}[/red]")
    judgement = "lost, early, double or unaccounted for" if wrong else "every message is accounted for"
    screen.say(f"[{'red' if wrong else 'green'}]{judgement}[/]")
    if lacking:
        screen.say(f"[yellow]this was a part of the demo only, without the pipeline: {escape(str(lacking))}[/yellow]")
    metrics = {
        "verdict": "failed" if wrong else "ok",
        "seconds": round(time.perf_counter() - began, 1),
        "flights": len(flights),
        "groups": {
            account.group: {
                name: getattr(account, name)
                for name in ("accepted", "delivered", "redelivered", "died", "dead", "pending", "per_second")
            }
            for account in accounts
        },
        **boarding_metrics(report),
        "pipeline": None if archived is None else dataclasses.asdict(archived),
        "wrong": wrong,
    }
    print(json.dumps(metrics), flush=True)
    return 1 if wrong else 0


def keep(stage: Stage, screen: Screen) -> None:
    """Serves the data of the demo until Ctrl-C, SIGTERM or the end of the server."""
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored where a shell started this in the background
        signal.signal(number, signal.default_int_handler)
    stage.serve()
    screen.say(f"serving until Ctrl-C; the console: {stage.console}")
    with suppress(KeyboardInterrupt):
        stage.processes["server"].wait()


def show_report(screen: Screen, report: month.Report) -> None:
    account = report.account
    screen.say(
        f"{account.calls:,} boarding calls: {account.delivered:,} received, {account.cancelled:,} cancelled, "
        f"{account.early} early, {account.double} double, {account.missing} missing, "
        f"{account.delivered_though_cancelled} received though cancelled; {account.redelivered} redelivered, "
        f"{account.too_late} cancelled too late"
    )
    screen.lateness("while the server ran", report.spared)
    screen.lateness(
        f"around the {report.outage.seconds:.1f} s without a server "
        f"(the gate had calls again {report.resumed_seconds:.1f} s later)",
        report.hit,
    )


def faults(flights: list[Flight], accounts: list[history.Account], report: month.Report) -> dict[str, list[str]]:
    """Returns the errors of the run, by producer, group or part of the pipeline."""
    wrong = {account.group: list(account.wrong) for account in accounts if account.wrong}
    if any(account.accepted != len(flights) for account in accounts):
        wrong["producer"] = [f"accepted {accounts[0].accepted} of {len(flights)}"]
    if report.account.wrong:
        wrong["boarding"] = list(report.account.wrong)
    return wrong


def archived_faults(account: lake.Account, flights: list[Flight], report: month.Report) -> dict[str, list[str]]:
    sentences = account.wrong(len(flights), report.account.calls, report.account.delivered)
    return {"pipeline": sentences} if sentences else {}


def boarding_metrics(report: month.Report) -> dict[str, Any]:
    counts = dataclasses.asdict(report.account)
    del counts["wrong"]
    return {
        **{f"boarding_{name}": count for name, count in counts.items()},
        "lateness_ms": dataclasses.asdict(summary(report.spared + report.hit)),
        "lateness_ms_outside_outage": dataclasses.asdict(summary(report.spared)),
        "outage_seconds": round(report.outage.seconds, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
