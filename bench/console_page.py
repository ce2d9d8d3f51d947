"""Measures the cost of an open page of the console, in a headless Chromium: ``python -m bench.console_page``.

Fills a data directory with 1,000 subjects of 10 groups, and measures

- the time from the navigation until rows are shown: by a server that has just started, and later, each in a browser
  that has nothing in its cache;
- the CPU of the server while a page is open, in windows between others without a page, once the server has read all
  numbers. It is without the CPU of the sweeper, which works for a quarter of the time;
- the messages/s of a producer, and the CPU of the server for each message, in short windows with the page and without
  it by turns;
- the compressed size of the page and of the files that it loads.

Prints each row as it comes. The last row is the load of the machine, as Linux counts it. The command takes two minutes,
and exits with 1 where a bound is missed.
"""

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page

from bench.console import fill
from bench.limits import cpu_seconds_without
from bench.measures import median, produced
from bench.serving import Served, serving_data
from hourwheel.client import Api
from hourwheel.console.files import contents
from tests.console import chromium

# The bounds that the run checks.
FIRST_VIEW_MS = 1_000.0
CORE_PERCENT = 2.0
PAGE_BYTES = 150 * 1_024

PAGES = {
    "overview": "#/",
    "by_number": "#/?sort=waiting&order=desc",
    "group": "#/subjects/subject-00000/groups/group-0",
}

# The time of the first frame after the first row: `performance` counts from the navigation.
_SHOWN = """
new MutationObserver((_, watching) => {
  if (!document.querySelector("tbody tr")) return;
  watching.disconnect();
  requestAnimationFrame(() => requestAnimationFrame(() => { window.shownMs = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
_SETTLED_MS = 3_000  # the cost of the first view is measured by itself
_PRODUCER_SECONDS = 1.5
_WAIT_MS = 60_000  # a page that shows no row by then fails the run
_LOADED = """
["navigation", "resource"]
  .flatMap((type) => performance.getEntriesByType(type))
  .reduce((sum, each) => sum + each.transferSize, 0)
"""


@contextmanager
def opened(browser: Browser, url: str, place: str) -> Iterator[Page]:
    """Opens a page in a context of its own, which has an empty cache, and yields it once it shows a row."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(_SHOWN)
        page.goto(f"{url}/console/{place}", wait_until="commit")
        page.wait_for_selector("tbody tr", timeout=_WAIT_MS)
        yield page
    finally:
        context.close()


def first_views(browser: Browser, served: Served, views: int) -> dict[str, float]:
    """Measures the first views of a server that has just started."""
    times, loaded = [], 0.0
    for _ in range(views):
        with opened(browser, served.url, PAGES["overview"]) as page:
            times.append(float(page.evaluate("window.shownMs")))
            loaded = float(page.evaluate(_LOADED))
    return {
        "first_view_after_start_ms": round(times[0], 1),
        "first_view_ms": round(median(times[1:]), 1),
        "loaded_bytes": loaded,
    }


def core_percent(served: Served, seconds: float) -> float:
    """Returns the CPU of the server, without its sweeper, in per cent of one core."""
    began, before = time.perf_counter(), cpu_seconds_without(served.pid, "sweeping")
    time.sleep(seconds)
    return (cpu_seconds_without(served.pid, "sweeping") - before) / (time.perf_counter() - began) * 100


def page_costs(browser: Browser, served: Served, seconds: float) -> Iterator[tuple[str, float]]:
    """Measures the CPU of the server with each page, less that without a page before and after it."""
    with Api(served.url) as api:
        while not api.overview(sort="waiting").complete:
            pass
    before = core_percent(served, seconds / 4)
    for name, place in PAGES.items():
        with opened(browser, served.url, place) as page:
            page.wait_for_timeout(_SETTLED_MS)
            percent = core_percent(served, seconds)
        after = core_percent(served, seconds / 4)
        yield f"{name}_core_percent", round(percent - (before + after) / 2, 2)
        before = after
    yield "without_page_core_percent", round(before, 2)


class Run(NamedTuple):
    """A producer's messages/s, and the CPU of the server for each message, without the sweeper's, in microseconds."""

    per_s: float
    server_us: float


def run_of_producer(served: Served, seconds: float) -> Run:
    before = cpu_seconds_without(served.pid, "sweeping")
    per_s = produced(served.url, "subject-00000", 10, 1, seconds)
    return Run(per_s, (cpu_seconds_without(served.pid, "sweeping") - before) * 1e6 / (per_s * seconds))


def producer_ratio(browser: Browser, served: Served, rounds: int, seconds: float) -> dict[str, float]:
    """Measures a producer with the page and without it by turns. Each round has its own ratio."""
    ratios, without, server_ratios = [], [], []
    run_of_producer(served, seconds)
    for number in range(rounds):
        runs = {}
        for with_page in (True, False) if number % 2 else (False, True):
            if with_page:
                with opened(browser, served.url, PAGES["overview"]):
                    runs[True] = run_of_producer(served, seconds)
            else:
                runs[False] = run_of_producer(served, seconds)
        ratios.append(runs[True].per_s / runs[False].per_s)
        server_ratios.append(runs[True].server_us / runs[False].server_us)
        without.append(runs[False].per_s)
    return {
        "producer_per_s": round(median(without)),
        "producer_ratio_with_page": round(median(ratios), 3),
        "producer_ratio_lowest": round(min(ratios), 3),
        "producer_ratio_highest": round(max(ratios), 3),
        "server_cpu_a_message_ratio": round(median(server_ratios), 3),
    }


def page_bytes() -> int:
    """Returns the size of all files of the console, compressed."""
    return sum(len(gzip.compress(file.plain)) for name, file in contents().items() if name)


def missed(row: dict[str, float]) -> list[str]:
    """Returns the bounds that these measurements miss."""
    slow = [name for name in ("first_view_after_start_ms", "first_view_ms") if row[name] >= FIRST_VIEW_MS]
    costly = [f"{page}_core_percent" for page in PAGES if row[f"{page}_core_percent"] >= CORE_PERCENT]
    return [*slow, *costly, *(["page_bytes"] if row["page_bytes"] >= PAGE_BYTES else [])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of each window of CPU with a page; without one a quarter of it"
    )
    parser.add_argument("--rounds", type=int, default=5, help="of the producer")
    options = parser.parse_args()
    row: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder, chromium.browser() as browser:
        data = Path(folder) / "data"
        fill(data, options.subjects, options.groups)
        with serving_data(data, program=("bench.named_threads", "serve")) as served:
            for name, value in measured(browser, served, options):
                sys.stdout.write(f"{name:28} {value:,}\n")
                sys.stdout.flush()
                row[name] = value
    over = missed(row)
    sys.stdout.write(f"missed: {', '.join(over) or 'no bound'}\n{json.dumps(row)}\n")
    return 1 if over else 0


def measured(browser: Browser, served: Served, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    """Yields each row, as soon as it is measured."""
    yield "page_bytes", page_bytes()
    yield from first_views(browser, served, options.views).items()
    yield from page_costs(browser, served, options.seconds)
    yield from producer_ratio(browser, served, options.rounds, _PRODUCER_SECONDS).items()
    yield "load", round(os.getloadavg()[0], 1)


if __name__ == "__main__":
    sys.exit(main())
