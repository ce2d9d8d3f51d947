"""docs/costs.md and docs/benchmarks.md repeat numbers of the full tables beside the code, and have no others."""

import re

import pytest

from tests.docs.pages import ROOT

COSTS = (ROOT / "docs/costs.md").read_text()
ALL_COSTS = (ROOT / "bench/cost/README.md").read_text()
BENCHMARKS = (ROOT / "docs/benchmarks.md").read_text()
ALL_BENCHMARKS = (ROOT / "bench/README.md").read_text()


def rows(page: str, heading: str) -> list[list[str]]:
    """Returns the cells of the tables below a heading."""
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_each_price_of_a_million_messages_is_that_of_a_counted_row() -> None:
    counted = {tuple(row[-3:-2] + row[-1:]) for row in rows(ALL_COSTS, "Sent and received at once")}
    told = [tuple(row[1:]) for row in rows(COSTS, "Sent and received at once")[1:]]
    assert len(told) == 9
    assert [row for row in told if row not in counted] == []


@pytest.mark.parametrize("price", ["2.65", "268", "0.146"])
def test_each_price_in_a_sentence_is_that_of_a_counted_row(price: str) -> None:
    assert f"${price}" in COSTS
    assert f"**{price}**" in ALL_COSTS


@pytest.mark.parametrize("heading", ["Sending and receiving", "Delayed messages"])
def test_each_row_of_a_benchmark_stands_in_the_full_table(heading: str) -> None:
    measured = {number for row in rows(ALL_BENCHMARKS, heading) for number in row}
    told = [row for row in rows(BENCHMARKS, heading) if re.fullmatch(r"[\d.,]+ (k|ms|s)", row[1])]
    assert len(told) > 3
    assert [number for row in told for number in row[1:] if number not in measured] == []
