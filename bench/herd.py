"""``make bench-herd``: prints how late delayed messages of other subjects come while many messages of one subject are
due at one instant.

The other messages are due within the seconds around that instant. Half of them were sent before. The other half is sent
meanwhile, each with a delay of a fifth of a second, as a retry has it. Rounds with the herd and without it take turns.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.table import Table

from bench.measures import batches, bodies, median, quantile
from bench.serving import server
from hourwheel.client import Message, Producer

_RATE = 100
"""Other messages due each second, of either kind: far apart, so that each is handed over alone."""

_SECONDS = 6
"""Other messages are due for this long, from a second before the herd on."""

_DELAY_SECONDS = 0.2


class _Listener:
    """A consumer of one subject, in a process of its own."""

    def __init__(self, url: str, subject: str, messages: int, seconds: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.listener", url, subject, str(messages), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "listening"

    def late_ms(self) -> tuple[list[float], int]:
        """Waits for the end, and returns how late each message came, and how many were sent too late to wait."""
        answer, _ = self._process.communicate()
        seen = json.loads(answer)
        return seen["late_ms"], seen["sent_at_once"]


def beside(url: str, name: str, herd: int) -> dict[str, float]:
    """Returns how late the messages of other subjects come beside this many of one subject, in milliseconds."""
    lead = 5 + herd / 15_000  # long enough for a loaded machine to send everything before
    others = _RATE * _SECONDS
    limit = lead + _SECONDS + 60
    known, fresh = _Listener(url, f"known-{name}", others, limit), _Listener(url, f"fresh-{name}", others, limit)
    crowd = _Listener(url, f"herd-{name}", herd, limit) if herd else None
    due = datetime.now(UTC) + timedelta(seconds=lead)
    first = due - timedelta(seconds=1)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(_send_known, url, f"known-{name}", first).result()
        if herd:
            pool.submit(_send_herd, url, f"herd-{name}", herd, due).result()
        sent_in_time = datetime.now(UTC) < first
        pool.submit(_send_fresh, url, f"fresh-{name}", first).result()
    found = {"known": known.late_ms(), "fresh": fresh.late_ms()}
    row: dict[str, float] = {"herd": herd, "sent_in_time": float(sent_in_time)}
    for kind, (late, at_once) in found.items():
        row |= {
            f"{kind}_lost": others - len(late) - at_once,
            f"{kind}_early": sum(milliseconds < 0 for milliseconds in late),
            f"{kind}_p50_ms": round(median(late), 1),
            f"{kind}_p99_ms": round(quantile(late, 0.99), 1),
            f"{kind}_max_ms": round(max(late), 1),
        }
    if crowd is not None:
        late, at_once = crowd.late_ms()
        row |= {"herd_lost": herd - len(late) - at_once, "herd_early": sum(milliseconds < 0 for milliseconds in late)}
        row["herd_seconds"] = round(max(late) / 1_000, 2)
    return row


def _send_known(url: str, subject: str, first: datetime) -> None:
    step = timedelta(seconds=1 / _RATE)
    with Producer(url, subject=subject) as producer:
        texts = bodies(_RATE * _SECONDS)
        producer.send_batch([Message(text, deliver_at=first + number * step) for number, text in enumerate(texts)])


def _send_herd(url: str, subject: str, herd: int, due: datetime) -> None:
    (texts,) = batches(1_000)
    with Producer(url, subject=subject) as producer:
        for _ in range(herd // 1_000):
            producer.send_batch([Message(text, deliver_at=due) for text in next(texts)])


def _send_fresh(url: str, subject: str, first: datetime) -> None:
    """Sends messages with a short delay, each when its turn comes, without waiting for the one before."""
    with Producer(url, subject=subject, linger_seconds=0) as producer:
        for number, text in enumerate(bodies(_RATE * _SECONDS)):
            due = first + timedelta(seconds=number / _RATE)
            rest = due.timestamp() - _DELAY_SECONDS - time.time()
            time.sleep(max(0.0, rest))
            producer.send(text, deliver_at=due)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.herd", description="Messages of other subjects beside a herd."
    )
    parser.add_argument("--herd", type=int, default=500_000, help="messages of one subject, due at one instant")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"alone": [], "beside a herd": []}
    with server() as url:
        for number in range(options.rounds):
            found["alone"].append(beside(url, f"alone-{number}", 0))
            found["beside a herd"].append(beside(url, f"beside-{number}", options.herd))
    table = Table(
        title=f"other subjects beside {options.herd:,} messages due at one instant, medians of {options.rounds}"
    )
    rows = {name: _medians(rounds) for name, rounds in found.items()}
    columns = list(rows["beside a herd"])
    table.add_column("")
    for name in rows:
        table.add_column(name, justify="right")
    for column in columns:
        table.add_row(column, *(f"{row[column]:,}" if column in row else "" for row in rows.values()))
    Console().print(table)
    print(json.dumps({"rounds": found}))


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {column: median([row[column] for row in rounds]) for column in rounds[0]}


if __name__ == "__main__":
    main()
