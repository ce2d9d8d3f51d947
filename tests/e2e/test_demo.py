"""Runs ``make demo`` as for a newcomer, with fewer days, so that it takes less than a minute."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLIGHTS, CANCELLED, UNTAILED = 6_998, 39, 9  # the flights of the first eight days


def test_the_demo_accounts_for_every_flight() -> None:
    demo = subprocess.run(
        [sys.executable, "-m", "demo", "--days", "8"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1_800,
        check=False,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    metrics = json.loads(demo.stdout.splitlines()[-1])
    assert (metrics["verdict"], metrics["wrong"], metrics["flights"]) == ("ok", {}, FLIGHTS)
    for group in metrics["groups"].values():
        assert (group["accepted"], group["delivered"], group["pending"], group["dead"]) == (FLIGHTS, FLIGHTS, 0, 0)
    assert metrics["groups"]["billing"]["redelivered"] > 0
    assert (metrics["groups"]["audit"]["died"], metrics["groups"]["audit"]["redelivered"]) == (UNTAILED, 3 * UNTAILED)

    assert metrics["boarding_calls"] == FLIGHTS
    assert metrics["boarding_cancelled"] + metrics["boarding_too_late"] == CANCELLED
    assert metrics["boarding_delivered"] == FLIGHTS - metrics["boarding_cancelled"]
    for what in ("early", "double", "missing", "delivered_though_cancelled"):
        assert metrics[f"boarding_{what}"] == 0
    for late in (metrics["lateness_ms"], metrics["lateness_ms_outside_outage"]):
        assert 0 <= late["p50"] <= late["p99"] <= late["max"]
    assert metrics["outage_seconds"] > 0
    assert "█" not in demo.stdout  # plain text without a terminal
