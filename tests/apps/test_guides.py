"""The first examples of docs/celery.md and docs/dramatiq.md run as they are written, but for the port."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hourwheel.client import Api
from tests.apps.celery.workers import SECONDS, entry_points
from tests.docs.pages import ROOT, examples
from tests.integration.process import Server


@pytest.mark.parametrize(("guide", "subject"), [("celery", "celery"), ("dramatiq", "default")])
def test_the_first_example_delays_a_message_in_the_queue(guide: str, subject: str, tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    try:
        code = examples(ROOT / f"docs/{guide}.md", "python")[0].replace(":7420", f":{server.port}")
        (tmp_path / "shop.py").write_text(code)
        path = os.pathsep.join([str(ROOT), str(entry_points(tmp_path / "entry-points"))])
        env = {**os.environ, "PYTHONPATH": path}
        ran = subprocess.run(
            [sys.executable, "shop.py"], cwd=tmp_path, env=env, capture_output=True, timeout=SECONDS, check=False
        )
        assert ran.returncode == 0, ran.stderr.decode()
        with Api(f"http://127.0.0.1:{server.port}") as api:
            assert api.pending(subject, hours=744).messages == 1
    finally:
        server.stop()
