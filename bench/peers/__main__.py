"""``make bench-peers``: measures the same work on other queues, each of which answers after its sync. Prints medians of
rounds that take turns.

Each server runs alone, on a folder of the same disk; senders and receivers are threads of this one process, each with a
connection of its own. A peer that is not installed is skipped with a sentence. The last line is JSON.
"""

import argparse
import json
import random
import sys
import tempfile
import threading
import time
from contextlib import closing
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import measures
from bench.measures import counted, median, quantile
from bench.peers import beanstalkd, hourwheel, nats_jetstream, postgres, rabbitmq, redis_streams
from bench.peers.peer import Absent, NoDelays, Opened, Peer

PEERS: dict[str, Opened] = {
    "hourwheel": hourwheel.opened,
    "redis": redis_streams.opened,
    "rabbitmq": rabbitmq.opened,
    "nats": nats_jetstream.opened,
    "beanstalkd": beanstalkd.opened,
    "postgres": postgres.opened,
}
# The threads that send, by the messages of their batches.
SENDERS = {1: 16, 100: 8, 1_000: 4}
RECEIVERS = 8
_DELAYED_PER_S = 1_000
_names = count()


def produced(peer: Peer, batch: int, seconds: float, queue: str) -> float:
    senders = [peer.sender(queue) for _ in range(SENDERS[batch])]
    texts = measures.batches(batch, len(senders))

    def step(caller: int) -> int:
        senders[caller].send([body.encode() for body in next(texts[caller])])
        return batch

    units, taken = counted(len(senders), seconds, step)
    for sender in senders:
        sender.close()
    return units / taken


def consumed(peer: Peer, queue: str, seconds: float) -> float:
    """Returns the messages/s received and acknowledged, 100 at a time."""
    receivers = [peer.receiver(queue) for _ in range(RECEIVERS)]
    units, taken = counted(RECEIVERS, seconds, lambda caller: len(receivers[caller].take(100, 0)))
    for receiver in receivers:
        receiver.close()
    return units / taken if units else 0.0


def latencies(peer: Peer, samples: int) -> list[float]:
    """Returns the milliseconds from the call that sends to the receipt, one message at a time."""
    queue, arrived = f"latency-{next(_names)}", threading.Semaphore(0)
    times: list[float] = []
    sender, receiver = peer.sender(queue), peer.receiver(queue)

    def receive() -> None:
        while len(times) < samples:
            for body in receiver.take(1, 2):
                times.append((time.perf_counter() - float(body)) * 1_000)
                arrived.release()

    thread = threading.Thread(target=receive)
    thread.start()
    for _ in range(samples):
        sender.send([str(time.perf_counter()).encode()])
        arrived.acquire(timeout=10)
        time.sleep(0.005)
    thread.join()
    sender.close()
    receiver.close()
    return times[samples // 10 :]


def lateness(peer: Peer, seconds: float) -> list[float]:
    """Returns the lateness of 1,000 messages a second, in milliseconds. Raises ``NoDelays``."""
    queue, messages, chance = f"late-{next(_names)}", int(_DELAYED_PER_S * seconds), random.Random(1)
    late_ms: list[float] = []
    with closing(peer.sender(queue)) as sender, closing(peer.receiver(queue)) as receiver:
        start = time.time() + 5
        for _ in range(messages // 100):
            due = [start + chance.random() * seconds for _ in range(100)]
            sender.send_later([f"{at:<200}".encode() for at in due], due)
        until = start + seconds + 30
        while len(late_ms) < messages and time.time() < until:
            bodies = receiver.take(1_000, 1)
            now = time.time()
            late_ms += [(now - float(body)) * 1_000 for body in bodies]
    return late_ms


def measured(peer: Peer, seconds: float) -> dict[str, float]:
    row: dict[str, float] = {}
    for batch, senders in SENDERS.items():
        queue = f"queue-{next(_names)}"
        row[f"produced/s, batch {batch:,}, {senders} senders"] = produced(peer, batch, seconds, queue)
        if batch == 100:
            rate = consumed(peer, queue, seconds / 2)
            row[f"received and settled/s, by 100, {RECEIVERS} receivers"] = rate
    row |= _quantiles("send to receipt", latencies(peer, 500 if seconds > 1 else 50))
    try:
        return row | _quantiles("1,000 due/s, late", lateness(peer, 2 * seconds))
    except NoDelays:
        return row


def _quantiles(what: str, times: list[float]) -> dict[str, float]:
    return {f"{what}, p50 ms": median(times), f"{what}, p99 ms": quantile(times, 0.99)}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {
        metric: round(median([row[metric] for row in rounds]), 2 if metric.endswith("ms") else None)
        for metric in rounds[0]
    }


def table(rows: dict[str, dict[str, float]]) -> Table:
    """Returns a table with a column for each system. The last column divides this queue by the best of the others:
    above 1 it is ahead."""
    result = Table(title="messages of 200 bytes, each answered after its sync", title_justify="left")
    for name in ("", *rows, "ahead of the best other"):
        result.add_column(name, justify="right" if name else "left")
    ours = next(iter(rows.values()))
    for metric in ours:
        values = [row.get(metric) for row in rows.values()]
        result.add_row(metric, *("-" if value is None else f"{value:,}" for value in values), ahead(metric, values))
    return result


def ahead(metric: str, values: list[float | None]) -> str:
    ours, *others = values
    known = [value for value in others if value]
    if not ours or not known:
        return ""
    return f"{min(known) / ours if metric.endswith('ms') else ours / max(known):.2f}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("peers", nargs="*", help=f"some of: {', '.join(PEERS)} (this queue is always measured)")
    parser.add_argument("--quick", action="store_true", help="short rounds, to see that it runs")
    arguments = parser.parse_args()
    if unknown := set(arguments.peers) - set(PEERS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    number, seconds = (1, 0.5) if arguments.quick else (3, 2.0)
    chosen = {name: PEERS[name] for name in PEERS if not arguments.peers or name in {"hourwheel", *arguments.peers}}
    console = Console(width=190)
    rounds: dict[str, list[dict[str, float]]] = {}
    setups: dict[str, dict[str, str]] = {}
    for _ in range(number):
        for name in list(chosen):
            try:
                with tempfile.TemporaryDirectory(prefix="hourwheel-peer-") as folder:
                    (data := Path(folder) / "peer").mkdir()
                    with chosen[name](data) as peer:
                        rounds.setdefault(peer.name, []).append(measured(peer, seconds))
                        setups[peer.name] = {"version": peer.version, "settings": peer.settings}
            except Absent as reason:
                console.print(f"{name} is skipped: {reason}")
                del chosen[name]
    rows = {name: medians(found) for name, found in rounds.items()}
    console.print(table(rows))
    for name, setup in setups.items():
        console.print(f"{name} {setup['version']}: {setup['settings']}")
    print(json.dumps({"date": measures.today(), "systems": setups, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
