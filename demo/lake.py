"""The last act: all of it archived, compacted, reconciled, and reported; where Spark can run."""

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
    """``findings``: by kind. ``counted``: messages of the tables, as the jobs counted them."""

    archived: int
    rows: dict[str, int]
    findings: dict[str, int]
    page: str

    def wrong(self, flights: int, calls: int) -> list[str]:
        """What the tables say against the producers' own books: every flight and each boarding call that was accepted
        is there."""
        told = [f"{count} findings: {kind}" for kind, count in self.findings.items() if count]
        if self.archived < flights + calls:
            told.append(f"{self.archived} messages archived, {flights + calls} were accepted")
        if self.rows.get("messages", 0) < self.archived:
            told.append(f"{self.rows.get('messages', 0)} messages in the lake, {self.archived} were archived")
        return told


def missing() -> str:
    """Why Spark cannot run here; empty where it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not installed, as there was no Java 17 to 22 when this was set up"
    home = os.environ.get("JAVA_HOME")
    if shutil.which(os.path.join(home, "bin", "java") if home else "java") is None:
        return "there is no Java 17"
    return ""


def perform(screen: Screen, data: Path) -> Account:
    """Runs the pipeline over the data directory, whose server has stopped."""
    screen.say("the pipeline: archive, compact, reconcile, metrics, report (Spark takes a while to start)")
    command = [
        sys.executable,
        "-m",
        "hourwheel",
        "pipeline",
        "run",
        "--data",
        str(data),
        "--output",
        str(REPORTS),
        "--json",
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        raise SystemExit(f"the pipeline failed:\n{ended.stdout}{ended.stderr}")
    reports: dict[str, Any] = {}
    for line in ended.stdout.splitlines():
        told = json.loads(line)
        reports[told["job"]] = told["report"]
    status = _pipeline("status", "--data", str(data))
    account = Account(
        archived=reports["archive"]["messages"],
        rows={one["table"]: one["rows"] for one in json.loads(status.stdout)["tables"]},
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


def _pipeline(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hourwheel", "pipeline", *words, "--json"]
    return subprocess.run(command, capture_output=True, text=True)
