"""The first example for Celery runs as it is pasted, but for the port and the length of the delay."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, examples
from tests.integration.process import SECONDS, Server

CELERY = examples(ROOT / "docs/celery.md", "python")[0]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "data")
    yield started
    started.stop()


def pasted(code: str, server: Server) -> str:
    assert ":7420" in code
    return code.replace(":7420", f":{server.port}")


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-u", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    late = threading.Timer(SECONDS, process.kill)  # ends the wait for a line that does not come
    late.start()
    try:
        yield process
    finally:
        late.cancel()
        process.terminate()
        process.communicate(timeout=SECONDS)


def run(folder: Path, *command: str) -> None:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


def test_a_task_of_celery_runs_after_its_countdown(server: Server, tmp_path: Path) -> None:
    code = pasted(CELERY, server)
    assert "countdown=30 * 86_400" in code
    (tmp_path / "shop.py").write_text(code.replace("countdown=30 * 86_400", "countdown=1"))
    with running(tmp_path, "-m", "celery", "-A", "shop", "worker", "--pool", "solo") as worker:
        assert worker.stdout is not None
        run(tmp_path, "shop.py")
        assert any("the trial of customer-42 ends" in line for line in worker.stdout)
