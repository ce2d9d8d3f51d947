"""The page of series has what a server exports, and rules and dashboard ask for nothing else."""

import json
import re
from typing import Any

import pytest
import yaml

from tests.docs import series
from tests.docs.pages import ROOT

CONTRIB = ROOT / "contrib"
_SERIES = re.compile(r"\bhourwheel_[a-z_]+")


@pytest.fixture(scope="module")
def exported() -> set[str]:
    families = series.families()
    counters = {f"{family.name}_total" for family in families if family.type == "counter"}
    return counters | {sample.name for family in families for sample in family.samples}


def alerts() -> list[dict[str, Any]]:
    rules: dict[str, Any] = yaml.safe_load((CONTRIB / "alerts.yaml").read_text())
    return [rule for group in rules["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    board: dict[str, Any] = json.loads((CONTRIB / "grafana.json").read_text())
    return board


def test_the_page_has_every_series() -> None:
    assert series.PAGE.read_text() == series.page(), "run python -m tests.docs.series"


def test_alerts_ask_for_series_that_exist(exported: set[str]) -> None:
    asked = {name for alert in alerts() for name in _SERIES.findall(alert["expr"])}
    assert asked - exported == set()


def test_every_alert_stands_in_the_table_and_names_a_section(exported: set[str]) -> None:
    page = (ROOT / "docs/production.md").read_text()
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `Hourwheel"))
    assert re.findall(r"Hourwheel\w+", rows) == [alert["alert"] for alert in alerts()]
    for alert in alerts():
        path, _, section = alert["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / path).read_text(), re.MULTILINE)
        assert section in [heading.lower().replace(" ", "-") for heading in headings]


def test_the_dashboard_asks_for_series_that_exist(exported: set[str]) -> None:
    asked = set(_SERIES.findall(json.dumps(dashboard())))
    assert asked - exported == set()


def test_the_panels_of_the_dashboard_lie_side_by_side() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = [
        (column, row)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for row in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert {column for column, _ in cells} == set(range(24))
