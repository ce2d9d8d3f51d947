"""Runs workers of Celery, each in a process of its own, and reads the file to which their tasks append lines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from celery import Celery

ROOT = Path(__file__).parents[3]
SECONDS = 60.0


class Journal:
    """The lines that tasks wrote, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def of(self, item: str) -> list[str]:
        """Returns the lines about an item, with their first words only."""
        return [line.split()[0] for line in self.lines() if line.split()[1] == item]

    def wait(self, item: str, count: int) -> list[str]:
        """Waits until this many lines are about the item."""
        give_up_at = monotonic() + SECONDS
        while len(self.of(item)) < count:
            assert monotonic() < give_up_at, (item, self.lines()[-20:])
            sleep(0.01)
        return self.of(item)

    def wait_for_word(self, item: str, word: str) -> None:
        """Waits until a line with this first word is about the item."""
        give_up_at = monotonic() + SECONDS
        while word not in self.of(item):
            assert monotonic() < give_up_at, (item, self.lines()[-20:])
            sleep(0.01)

    def words(self, item: str) -> list[list[str]]:
        return [line.split() for line in self.lines() if line.split()[1] == item]


def entry_points(folder: Path) -> Path:
    """Writes the entry points of this package as an installation does: one that is older may not have them."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "hourwheel_entry_points-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hourwheel-entry-points\nVersion: 0\n")
    lines = [
        line for group, each in declared.items() for line in (f"[{group}]", *(f"{k} = {v}" for k, v in each.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


def environment(broker: str, journal: Path, extra: Path, **options: Any) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(extra)]),
        "SHOP_BROKER": broker,
        "SHOP_JOURNAL": str(journal),
        "SHOP_OPTIONS": json.dumps(options),
    }


class Worker:
    """``celery worker``; started when it is made, ready after ``ready``."""

    def __init__(self, name: str, log: Path, env: dict[str, str], *arguments: str) -> None:
        self.name = f"{name}@test"
        self.log = log
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "tests.apps.celery.shop",
            "worker",
            "-n",
            self.name,
            "--loglevel=INFO",
            *arguments,
        ]
        with log.open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=output, stderr=output, start_new_session=True
            )

    def ready(self) -> Worker:
        give_up_at = monotonic() + SECONDS
        while " ready." not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert monotonic() < give_up_at, self.log.read_text()
            sleep(0.02)
        return self

    def stop(self) -> int:
        """Ends it as SIGTERM does: tasks under way are finished."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def kill(self) -> None:
        """Ends it and its children at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(SECONDS)


def application(broker: str, **options: Any) -> Celery:
    """Returns an application that only sends."""
    app = Celery("sender", broker=broker, broker_transport_options=options, set_as_current=False)
    app.conf.task_ignore_result = True
    return app
