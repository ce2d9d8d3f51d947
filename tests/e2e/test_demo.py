"""Runs ``make demo`` as for a newcomer, with fewer days: two without Spark, eight with it."""

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def play_and_keep(days: int, **environment: str) -> list[str]:
    """Plays the demo until it serves its data, opens its console, and ends it. Returns the lines that it printed
    before."""
    command = [sys.executable, "-m", "demo", "--days", str(days), "--keep"]
    variables = os.environ | environment
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True) as demo,
    ):
        assert demo.stdout is not None
        limit = threading.Timer(1_800, demo.kill)
        limit.start()
        try:
            lines = list(itertools.takewhile(lambda line: "serving until Ctrl-C" not in line, demo.stdout))
            errors.seek(0)
            assert demo.poll() is None, "".join(lines) + errors.read()  # it serves
            console = next(line.split()[-1] for line in lines if "the console: " in line)
            with urllib.request.urlopen(console, timeout=120) as answer:
                assert "Hourwheel" in answer.read().decode()
            demo.send_signal(signal.SIGINT)
            assert demo.wait(timeout=600) == 0, "".join(lines)
        finally:
            limit.cancel()
            demo.terminate()
    return lines


def test_the_demo_accounts_for_every_flight_and_serves_them_in_the_end(tmp_path: Path) -> None:
    lines = play_and_keep(2, JAVA_HOME=str(tmp_path))  # where there is no Java
    metrics = json.loads(lines[-1])
    _accounts(metrics, flights=1_785, cancelled=12, untailed=2)
    assert metrics["pipeline"] is None
    assert any("without the pipeline: there is no Java 17" in line for line in lines)
    assert "█" not in "".join(lines)  # plain text without a terminal


@pytest.mark.volume
def test_the_demo_compares_what_it_sent_with_the_lake() -> None:
    metrics = json.loads(play_and_keep(8)[-1])
    _accounts(metrics, flights=6_998, cancelled=39, untailed=9)
    assert metrics["pipeline"] is not None


def _accounts(metrics: dict[str, Any], flights: int, cancelled: int, untailed: int) -> None:
    """Asserts that the demo has found each of these flights where it belongs."""
    assert (metrics["verdict"], metrics["wrong"], metrics["flights"]) == ("ok", {}, flights)
    for group in metrics["groups"].values():
        assert (group["accepted"], group["delivered"], group["pending"], group["dead"]) == (flights, flights, 0, 0)
    assert metrics["groups"]["billing"]["redelivered"] > 0
    assert (metrics["groups"]["audit"]["died"], metrics["groups"]["audit"]["redelivered"]) == (untailed, 3 * untailed)

    assert metrics["boarding_calls"] == flights
    assert metrics["boarding_cancelled"] + metrics["boarding_too_late"] == cancelled
    assert metrics["boarding_delivered"] == flights - metrics["boarding_cancelled"]
    for what in ("early", "double", "missing", "delivered_though_cancelled"):
        assert metrics[f"boarding_{what}"] == 0
    for late in (metrics["lateness_ms"], metrics["lateness_ms_outside_outage"]):
        assert 0 <= late["p50"] <= late["p99"] <= late["max"]
    assert metrics["outage_seconds"] > 0
