"""What an open page of the console costs, in a headless Chromium: ``python -m bench.console_page``.

Fills a data directory with 1,000 subjects of 10 groups, and measures

- the time from the navigation until rows are shown: by a server that has just started, and later, each in a browser
  that has nothing in its cache;
- the CPU of the server while a page is open, in windows between others without a page;
- the messages/s of a producer, in short windows with the page and without it by turns;
- the size of the page, compressed, and what it loads.

The last row is the load of the machine, as Linux counts it. The command exits with 1 where a bound is missed.
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
from typing import Any

from playwright.sync_api import Browser, Page

from bench.console import fill
from bench.limits import cpu_seconds
from bench.measures import bodies, median, produced
from bench.serving import Served, serving_data
from hourwheel.console.files import contents
from tests.console import chromium

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
    """Returns the CPU of the server in per cent of one core."""
    began, before = time.perf_counter(), cpu_seconds(served.pid)
    time.sleep(seconds)
    return (cpu_seconds(served.pid) - before) / (time.perf_counter() - began) * 100


def page_costs(browser: Browser, served: Served, seconds: float) -> dict[str, float]:
    """Measures the CPU of the server without a page, with each page, and without a page again."""
    before = core_percent(served, seconds)
    rows = {}
    for name, place in PAGES.items():
        with opened(browser, served.url, place) as page:
            page.wait_for_timeout(5_000)  # what the first view needs is measured by itself
            rows[name] = core_percent(served, seconds)
    without = (before + core_percent(served, seconds)) / 2
    costs = {f"{name}_core_percent": round(percent - without, 2) for name, percent in rows.items()}
    return {"without_page_core_percent": round(without, 2), **costs}


def producer_ratio(browser: Browser, served: Served, rounds: int, seconds: float) -> dict[str, float]:
    """Measures a producer with the page and without it by turns. Each round has its own ratio."""
    batch = bodies(10)
    ratios, rates = [], []
    produced(served.url, "subject-00000", batch, 1, seconds)
    for number in range(rounds):
        found = {}
        for with_page in (True, False) if number % 2 else (False, True):
            if with_page:
                with opened(browser, served.url, PAGES["overview"]):
                    found[True] = produced(served.url, "subject-00000", batch, 1, seconds)
            else:
                found[False] = produced(served.url, "subject-00000", batch, 1, seconds)
        ratios.append(found[True] / found[False])
        rates.append(found[False])
    return {
        "producer_per_s": round(median(rates)),
        "producer_ratio_with_page": round(median(ratios), 3),
        "producer_ratio_lowest": round(min(ratios), 3),
        "producer_ratio_highest": round(max(ratios), 3),
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
    parser.add_argument("--views", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each window of CPU")
    parser.add_argument("--rounds", type=int, default=5, help="of the producer")
    options = parser.parse_args()
    row: dict[str, Any] = {"page_bytes": page_bytes()}
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder, chromium.browser() as browser:
        data = Path(folder) / "data"
        fill(data, options.subjects, options.groups)
        with serving_data(data) as served:
            row |= first_views(browser, served, options.views)
            row |= page_costs(browser, served, options.seconds)
            row |= producer_ratio(browser, served, options.rounds, 5.0)
    row["load"] = round(os.getloadavg()[0], 1)
    for name, value in row.items():
        sys.stdout.write(f"{name:28} {value:,}\n")
    over = missed(row)
    sys.stdout.write(f"missed: {', '.join(over) or 'no bound'}\n{json.dumps(row)}\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
