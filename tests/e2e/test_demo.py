"""``make demo``, as it runs for a newcomer."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_demo_accounts_for_every_flight() -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    figures = json.loads(demo.stdout.splitlines()[-1])
    assert (figures["verdict"], figures["flights"]) == ("ok", 27_004)
    for group in figures["groups"].values():
        assert (group["accepted"], group["delivered"], group["pending"], group["dead"]) == (27_004, 27_004, 0, 0)
    assert figures["groups"]["billing"]["redelivered"] > 0
    assert (figures["groups"]["audit"]["died"], figures["groups"]["audit"]["redelivered"]) == (155, 3 * 155)
