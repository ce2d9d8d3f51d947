"""What needs attention is first on the overview: each line leads to its page and names its command."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console import troubled
from tests.console.pages import Visits
from tests.integration.process import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("troubled") / "data")
    with started.connect() as connection:
        troubled.fill(connection)
    yield started
    started.kill()
    started.process.close()


def overview(visits: Visits, server: Server, **how: Any) -> Page:
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/", **how)
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    return page


def test_the_gravest_points_come_first_and_lead_to_their_pages(server: Server, visits: Visits) -> None:
    page = overview(visits, server)
    points = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(points).to_have_count(5)
    expect(points.first).to_contain_text("payments / ledger")
    expect(points.first).to_contain_text("3 keys have stopped.")
    expect(points.first).to_contain_text("hourwheel group decide --all payments ledger retry")
    dead = points.filter(has_text="2,500 dead letters.")
    expect(dead.get_by_role("time")).to_have_count(1)
    dead.get_by_role("link", name="refunds / bank").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Dead letters")


def test_points_stand_before_the_subjects_whose_numbers_are_exact(server: Server, visits: Visits) -> None:
    page = overview(visits, server)
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="refunds", exact=True))
    expect(row).to_contain_text("2,500")
    expect(row).not_to_contain_text("≥")
    points = page.get_by_role("region", name="Needs attention")
    expect(points).to_be_visible()
    above, below = points.bounding_box(), page.get_by_role("region", name="Subjects").bounding_box()
    assert above is not None
    assert below is not None
    assert above["y"] < below["y"]


def test_a_resumed_group_leaves_the_list(server: Server, visits: Visits) -> None:
    page = overview(visits, server)
    point = page.get_by_role("listitem").filter(has_text="returns / warehouse")
    expect(point).to_contain_text("The group is paused.")
    server.ok("POST", "/v1/subjects/returns/groups/warehouse/resume")
    expect(point).to_have_count(0)
    server.ok("POST", "/v1/subjects/returns/groups/warehouse/pause")


def test_the_command_shows_the_points_of_the_page(server: Server) -> None:
    command = [sys.executable, "-m", "hourwheel", "--json", "overview"]
    environment = {**os.environ, "HOURWHEEL_URL": f"http://127.0.0.1:{server.port}"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    shown = json.loads(run.stdout)
    assert {(one["kind"], one["subject"], one["group"]) for one in shown["attention"]["concerns"]} >= {
        ("stopped_keys", "payments", "ledger"),
        ("dead", "refunds", "bank"),
        ("paused", "orders", "search"),
        ("paused", "prices", "search"),
    }
    assert len(shown["subjects"]) == len(troubled.GROUPS)


def test_a_small_screen_shows_each_point_whole(server: Server, visits: Visits) -> None:
    page = overview(visits, server, width=390)
    points = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    expect(points).to_have_count(4)
    page.get_by_role("button", name="Show 1 more").click()
    expect(points).to_have_count(5)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
