"""``python -m bench.latency``: shows where the time of a message goes, from ``send`` to a waiting handler.

Client and server note when they do each step (``bench/probed.py``). Each row of the table is the time since the step
before: the median and the 99th percentile. The last line is JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import floor, measures
from bench.limits import cpu_seconds
from bench.measures import median, quantile
from bench.probed import Probes, Step
from bench.serving import serving_data
from hourwheel.client.consuming.prefetcher import Prefetcher
from hourwheel.client.transport.connections import _ClientConnection

PAUSE_SECONDS = 0.005

STEPS = {
    "request sent": "client: a thread takes the message over, and encodes the request",
    "request received": "socket and the server's loop",
    "work queued": "server: parses the request, makes the row",
    "transaction begun": "one turn of the loop",
    "claims queued": "stores the row; the pull that waits is woken and begins its claim",
    "transaction handed over": "claims the message",
    "commit begun": "the thread that commits takes over",
    "commit done": "commit, with one sync",
    "callers resumed": "the loop takes over",
    "pull answered": "makes the answer of the pull, and sends it",
    "answer received": "socket, and the client's thread",
    "pull ended": "client: decodes the answer",
    "handled": "the thread of the handler takes over",
}
"""Each step, and the work since the step before."""


def probe_client(probes: Probes, subject: str) -> None:
    """Notes the steps of the client."""
    exchange, send = _ClientConnection.exchange, f"POST /v1/subjects/{subject}/messages ".encode()

    def noting(self: _ClientConnection, data: bytes, timeout_seconds: float) -> object:
        sends = data.startswith(send)
        if sends:
            probes.note("request sent")
        reply = exchange(self, data, timeout_seconds)
        if not sends:
            probes.note("answer received")
        return reply

    _ClientConnection.exchange = noting  # type: ignore[assignment, method-assign]
    probes.wrap(Prefetcher, "_end_pull", after="pull ended")


def intervals(sent: float, handled: float, steps: list[Step]) -> dict[str, float]:
    """Returns the milliseconds of each step of one message, from the steps between its sending and its handling. Goes
    back from the handling, to the last time of each step: a settlement of the message before may have taken the same
    steps earlier."""
    at, wanted, latest = {"handled": handled}, list(reversed(STEPS))[1:], handled
    for name in wanted:
        times = [seconds for step, seconds in steps if step == name and sent <= seconds <= latest]
        if times:
            latest = at[name] = times[-1]
    found, before = {}, sent
    for name in STEPS:
        if name in at:
            found[name], before = (at[name] - before) * 1_000, at[name]
    return found


def measured(samples: int) -> dict[str, dict[str, float]]:
    """Returns the median and the 99th percentile of each step in milliseconds, those of the whole way, and the server's
    CPU."""
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder:
        file, data = Path(folder) / "steps", Path(folder) / "data"
        client = Probes()
        probe_client(client, "latency")
        with serving_data(data, program=["bench.probed", str(file)]) as served:
            measures.latency_spans(served.url, samples // 10, PAUSE_SECONDS)
            before = cpu_seconds(served.pid)
            spans = measures.latency_spans(served.url, samples, PAUSE_SECONDS)
            cpu_ms = (cpu_seconds(served.pid) - before) / samples * 1_000
        server: list[Step] = [(name, seconds) for name, seconds in json.loads(file.read_text())]
    return {**summary(spans, sorted(server + client.steps, key=lambda step: step[1])), "server CPU": {"p50_ms": cpu_ms}}


def summary(spans: list[tuple[float, float]], steps: list[Step]) -> dict[str, dict[str, float]]:
    times_of_messages, position = [], 0
    for sent, handled in spans:
        while position < len(steps) and steps[position][1] < sent:
            position += 1
        last = position
        while last < len(steps) and steps[last][1] <= handled:
            last += 1
        times_of_messages.append(intervals(sent, handled, steps[position:last]))
    found = {name: [times[name] for times in times_of_messages if name in times] for name in STEPS}
    found["from send to the handler"] = [(handled - sent) * 1_000 for sent, handled in spans]
    return {
        name: {"p50_ms": median(values), "p99_ms": quantile(values, 0.99)} for name, values in found.items() if values
    }


def table(rows: dict[str, dict[str, float]]) -> Table:
    found = Table(title="from send to the handler of a waiting consumer, ms", title_justify="left")
    for name in ("until", "what happens", "p50", "p99"):
        found.add_column(name, justify="right" if name[0] == "p" else "left")
    for name, row in rows.items():
        texts = [f"{row[key]:.3f}" if key in row else "" for key in ("p50_ms", "p99_ms")]
        found.add_row(name, STEPS.get(name, ""), *texts)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_000)
    samples = parser.parse_args().samples
    began = time.perf_counter()
    rows = measured(samples)
    rows["one sync of this disk, alone"] = {"p50_ms": 1_000 / floor.syncs_per_second(1)}
    Console(width=140).print(table(rows))
    rounded = {name: {key: round(value, 3) for key, value in row.items()} for name, row in rows.items()}
    print(json.dumps({"seconds": round(time.perf_counter() - began), **rounded}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
