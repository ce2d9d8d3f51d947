"""``make bench``: prints medians and ratios of one run. Client, server and floor share the machine. The last line is
JSON."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import delays, filters, floor, measures, ordered, prepared, routes
from bench.limits import Use, peak_mb, stored_bytes, used
from bench.measures import median, quantile
from bench.serving import Served, server, serving

# The threads that send, by the messages of their batches: small batches need more of them to share syncs.
CALLERS = {1: 16, 10: 16, 100: 8, 1_000: 4}


def throughput(served: Served, syncs_per_s: float, batch: int, rounds: int, seconds: float) -> dict[str, float | str]:
    """Returns medians of interleaved rounds; ratios are medians of each round's own ratio."""
    callers, url = CALLERS[batch], served.url
    texts = measures.bodies(batch)
    alone, grouped, stored = [], [], []
    uses: dict[str, list[Use]] = {"produced": [], "pulled_settled": [], "by_100": [], "consumer": []}

    def note(name: str, work: Callable[..., float], *arguments: Any) -> None:
        uses[name].append(used(served, syncs_per_s, partial(work, url, *arguments)))

    for number in range(rounds):
        subject = f"throughput-{batch}-{number}"
        alone.append(floor.per_second(texts, seconds / 4))
        grouped.append(floor.per_second(texts, seconds / 4, callers))
        before = stored_bytes(served)
        note("produced", measures.produced, subject, batch, callers, seconds)
        stored.append((stored_bytes(served) - before) / (uses["produced"][-1].per_s * seconds))
        note("pulled_settled", measures.pulled, subject, "same", batch, callers, seconds / 2)
        note("by_100", measures.pulled, subject, "hundred", max(batch, 100), callers, seconds / 4)
    note("consumer", measures.consumed, f"throughput-{batch}-0", max(batch, 100), seconds / 2)
    rates = {name: [use.per_s for use in found] for name, found in uses.items()}
    row: dict[str, float | str] = {
        "callers": callers,
        "floor_sync_each_per_s": round(median(alone)),
        "floor_group_commit_per_s": round(median(grouped)),
    }
    for name, found in uses.items():
        row |= {
            f"{name}_per_s": round(median(rates[name])),
            f"{name}_client_us": round(median([use.client_us for use in found]), 2),
            f"{name}_server_us": round(median([use.server_us for use in found]), 2),
            f"{name}_limit": found[-1].limit,
        }
    return {
        **row,
        "bytes_on_disk": round(median(stored)),
        "produced_of_sync_each": _ratio(rates["produced"], alone),
        "produced_of_group_commit": _ratio(rates["produced"], grouped),
        "pulled_of_produced": _ratio(rates["pulled_settled"], rates["produced"]),
        "by_100_of_produced": _ratio(rates["by_100"], rates["produced"]),
    }


def _ratio(some: list[float], others: list[float]) -> float:
    return round(median([a / b for a, b in zip(some, others, strict=True)]), 3)


def latencies(url: str, samples: int) -> dict[str, float]:
    found = measures.latency(url, samples, 0.005)
    return {"p50_ms": round(median(found), 2), "p99_ms": round(quantile(found, 0.99), 2)}


def backlog(url: str, largest: int, pulls: int) -> dict[str, float]:
    """Returns the p50 of pulls by backlog. Rounds take turns, so that the load of the machine is the same for all."""
    sizes = [size for size in (1_000, 100_000, 1_000_000) if size <= largest]
    for size in sizes:
        measures.fill(url, f"backlog-{size}", size)
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(4):
        for size in sizes:
            times[size] += measures.pull_times(url, f"backlog-{size}", min(pulls, 24))
    answer = {f"p50_ms_at_{size}": round(median(times[size]), 3) for size in sizes}
    return {**answer, "largest_of_smallest": round(median(times[sizes[-1]]) / median(times[sizes[0]]), 3)}


def fan_out(url: str, rounds: int) -> dict[str, float]:
    """Returns the p50 of sends with 1 and with 70 groups, in turns."""
    for groups in (1, 70):
        measures.with_groups(url, f"groups-{groups}", groups)
    times: dict[int, list[float]] = {1: [], 70: []}
    for _ in range(rounds):
        for groups in (1, 70):
            times[groups] += measures.produce_times(url, f"groups-{groups}", 10, 100)
    few, many = median(times[1]), median(times[70])
    return {"p50_ms_1_group": round(few, 3), "p50_ms_70_groups": round(many, 3), "ratio": round(many / few, 3)}


def waiting(url: str, consumers: int, sends: int) -> dict[str, float]:
    """Returns times of sends beside many consumers in a long poll, and without them."""
    alone = measures.produce_times(url, "beside", 1, sends)
    waiters = measures.Waiters(url, consumers)
    try:
        beside = measures.produce_times(url, "beside", 1, sends)
    finally:
        waiters.close()
    return {
        "waiting_consumers": consumers if waiters.ready else 0,
        "p50_ms_alone": round(median(alone), 3),
        "p50_ms_beside": round(median(beside), 3),
        "p99_ms_alone": round(quantile(alone, 0.99), 3),
        "p99_ms_beside": round(quantile(beside, 0.99), 3),
        "p50_ratio": round(median(beside) / median(alone), 3),
    }


def lateness(quick: bool) -> dict[str, dict[str, float]]:
    found = {}
    for rate in (1_000, 10_000):
        with server() as url:
            found[f"{rate:,}/s"] = delays.lateness(url, "late", rate, 2 if quick else 15, beside=True)
    return found


def sustained(quick: bool) -> dict[str, float]:
    rates = [10_000] if quick else [10_000, 20_000, 30_000, 40_000, 50_000]
    with server() as url:
        return delays.sustained(url, rates, 2 if quick else 10)


def operations(quick: bool) -> dict[str, dict[str, dict[str, float]]]:
    cases = {"1 hour": (3_600, 1_000 if quick else 100_000), "1 year": (365 * 86_400, 100 if quick else 200)}
    return {
        name: {f"batch {batch}": delays.operations(batch, seconds, messages) for batch in (1, 10, 100)}
        for name, (seconds, messages) in cases.items()
    }


def table(title: str, columns: Mapping[str, Mapping[str, float | str]]) -> Table:
    """Returns a table with a row for each metric and a column for each case."""
    found = Table(title=title, title_justify="left")
    found.add_column("")
    for name in columns:
        found.add_column(name, justify="right")
    for metric in next(iter(columns.values())):
        found.add_row(metric.replace("_", " "), *(_text(case[metric]) for case in columns.values()))
    return found


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="short rounds and a small backlog, to see that it runs")
    quick = parser.parse_args().quick
    rounds, seconds = (1, 0.5) if quick else (3, 3.0)
    console = Console()
    with serving() as served:
        url, syncs = served.url, floor.syncs_per_second(seconds)
        console.print(f"this disk syncs {syncs:,.0f} times a second")
        by_batch = {f"batch {batch}": throughput(served, syncs, batch, rounds, seconds) for batch in CALLERS}
        console.print(table("200-byte messages per second, over HTTP, beside SQLite alone", by_batch))
        singles = prepared.by_case(served, syncs, rounds, seconds)
        console.print(table("single messages, prepared requests on plain sockets", singles))
        late = latencies(url, 100 if quick else 1_000)
        console.print(table("send to receipt, a consumer waiting", {"": late}))
        deep = backlog(url, 100_000 if quick else 1_000_000, 10 if quick else 24)
        console.print(table("pull of 10 by backlog", {"": deep}))
        wide = fan_out(url, 1 if quick else 5)
        console.print(table("produce of 10 by groups", {"": wide}))
        tagged = filters.by_batch(url, 20_000 if quick else 400_000, 1 if quick else 5)
        console.print(table("messages passed per second by one consumer, all of them and with a filter of 1 %", tagged))
        in_order = ordered.compared(url, 1_000, 2_000 if quick else 100_000, 1 if quick else 5)
        console.print(table("pulled and settled by 8 consumers of one queue with 1,000 keys", {"": in_order}))
        beside = waiting(url, 100 if quick else 1_000, 100 if quick else 500)
        console.print(table("produce of 1 beside consumers in a long poll", {"": beside}))
        memory = {"server": peak_mb(served.pid), "client": peak_mb(os.getpid())}
        console.print(table("peak memory so far, MB", {"": memory}))
    routed = routes.measured(1 if quick else 5, 0.5 if quick else 1.0)
    console.print(table("time of a message with many groups, subjects, queues or cells, of that with one", routed))
    moving = routes.moves(1 if quick else 3)
    console.print(
        table("sends of 1 to queues that move 100 times meanwhile, of sends to queues that do not", {"": moving})
    )
    late_by_rate = lateness(quick)
    console.print(table("delayed messages: how late they come, beside other traffic", late_by_rate))
    best = sustained(quick)
    console.print(table("delayed messages: highest rate with 99 of 100 within a second", {"": best}))
    hour = delays.opening(100_000 if quick else 1_000_000, 1_000)
    console.print(table("an hour of pending messages opened", {"": hour}))
    with server() as few, server() as many:
        buckets = delays.open_buckets(few, many, 1 if quick else 6)
    console.print(table("produce of 10 delayed messages by open buckets", {"": buckets}))
    costs = operations(quick)
    for spread, columns in costs.items():
        console.print(table(f"store operations for each delayed message, due within {spread}", columns))
    metrics = {
        "date": measures.today(),
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "syncs_per_s": round(syncs),
        "throughput": by_batch,
        "prepared_requests": singles,
        "peak_mb": memory,
        "send_to_receipt": late,
        "pull_by_backlog": deep,
        "produce_by_groups": wide,
        "filter_of_1_percent": tagged,
        "ordered_1_000_keys": in_order,
        "beside_waiting_consumers": beside,
        "routes": routed,
        "moves": moving,
        "delayed_lateness": late_by_rate,
        "delayed_sustained": best,
        "delayed_opening": hour,
        "delayed_open_buckets": buckets,
        "delayed_operations": costs,
    }
    print(json.dumps(metrics))
    return 0


if __name__ == "__main__":
    sys.exit(main())
