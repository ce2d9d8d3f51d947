"""Plays the last act: archives, compacts, reconciles and reports everything, if Spark can run."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.screen import Screen

REPORTS = Path(__file__).resolve().parent.parent / "build" / "demo"


@dataclass(frozen=True)
class Account:
    """The result of the pipeline. ``archived``: the number of archived messages and copies. ``rows``: the rows of each
    table. ``counted``: the rows of each kind, each row once, by the reconciliation. ``findings``: their numbers by
    kind."""

    archived: int
    rows: dict[str, int]
    counted: dict[str, int]
    findings: dict[str, int]
    page: str

    def wrong(self, flights: int, calls: int, delivered: int) -> list[str]:
        """Compares the tables with the records of producers and consumers. Returns the differences: each flight and
        each delivered call must be in the queues once, and each accepted call in a schedule log."""
        faults = [f"{count} findings: {kind}" for kind, count in self.findings.items() if count]
        queued, waited = (self.counted.get(f"messages {kind}", 0) for kind in ("queue", "schedule"))
        if queued != flights + delivered:
            faults.append(f"{queued} messages of queues in the lake, not {flights} flights and {delivered} calls")
        if waited < calls:
            faults.append(f"{waited} messages of schedules in the lake, {calls} calls were accepted")
        if self.rows.get("messages", 0) < self.archived:
            faults.append(f"{self.rows.get('messages', 0)} messages in the lake, {self.archived} were archived")
        return faults


def missing() -> str:
    """Returns why Spark cannot run here; an empty string if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not installed, as there was no Java 17 to 22 when this was set up"
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java") is None:
        return "there is no Java 17"
    return ""


def perform(screen: Screen, data: Path) -> Account:
    """Runs the pipeline on the data directory, whose server must have stopped."""
    screen.say("the pipeline: archive, compact, reconcile, metrics, report (Spark takes a while to start)")
    reports: dict[str, Any] = {}
    for line in _pipeline("run", "--data", str(data), "--output", str(REPORTS)).splitlines():
        answer = json.loads(line)
        reports[answer["job"]] = answer["report"]
    status = json.loads(_pipeline("status", "--data", str(data)))
    account = Account(
        archived=reports["archive"]["messages"],
        rows={table["table"]: table["rows"] for table in status["tables"]},
        counted=reports["reconcile"]["rows"],
        findings=reports["reconcile"]["counts"],
        page=reports["report"]["page"],
    )
    screen.say(
        f"{account.archived:,} messages and copies archived; lake: "
        + ", ".join(f"{count:,} {table}" for table, count in account.rows.items())
        + f"; {sum(account.findings.values())} findings"
    )
    screen.say(f"the report: {account.page}")
    return account


def _pipeline(*words: str) -> str:
    """Runs a command of the pipeline and returns its output."""
    command = [sys.executable, "-m", "hourwheel", "pipeline", *words, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode not in (0, 3):  # 3: findings, which the demo reports itself
        raise SystemExit(f"pipeline {words[0]} failed:\n{ended.stdout}{ended.stderr}")
    return ended.stdout
