"""Runs ``make demo`` as for a newcomer, with fewer days, so that it takes less than a minute."""

import itertools
import json
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLIGHTS, CANCELLED, UNTAILED = 6_998, 39, 9  # the flights of the first eight days


def play_and_keep() -> list[str]:
    """Plays the demo until it serves its data, opens its console, and ends it. Returns the lines that it printed
    before."""
    command = [sys.executable, "-m", "demo", "--days", "8", "--keep"]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True) as demo,
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


def test_the_demo_accounts_for_every_flight_and_serves_them_in_the_end() -> None:
    lines = play_and_keep()
    metrics = json.loads(lines[-1])
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
    assert "█" not in "".join(lines)  # plain text without a terminal
