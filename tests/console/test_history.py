"""Pages show the last hour of groups as the server keeps it."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.pages import Visits
from tests.integration.process import Server

MINUTES = [f"2026-11-28T09:{minute:02}:00.000Z" for minute in range(60)]
SHIFTS = {"billing": 40, "search": 400}


def group(name: str, most: int) -> dict[str, Any]:
    waiting = [most - abs(30 - minute) for minute in range(60)]
    return {
        "group": name,
        "at": MINUTES,
        "accepted_per_second": [2.5] * 60,
        "pulled_per_second": [None, *[1.25] * 59],
        "waiting": waiting,
        "oldest_seconds": waiting,
        "dead": [0] * 60,
    }


def hour(page: Page, since: str | None = MINUTES[0]) -> list[str]:
    """Answers calls for the history with an hour of each group. Returns the list of the addresses."""
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        groups = [
            group(name, most) for name, most in SHIFTS.items() if f"group={name}" in asked[-1] or "?" not in asked[-1]
        ]
        body = {"subject": "orders", "since": since, "groups": groups if since else [], "next": None, "at": MINUTES[-1]}
        route.fulfill(body=json.dumps(body), content_type="application/json")

    page.route(re.compile("/v1/subjects/orders/history"), answer)
    return asked


@pytest.fixture
def page(shop: Server, visits: Visits) -> Page:
    shop.ok("PUT", "/v1/subjects/orders/groups/search")
    return visits.open(f"http://127.0.0.1:{shop.port}/console/#/")


def to(page: Page, place: str) -> None:
    page.evaluate("(place) => { location.hash = place; }", f"#/subjects/{place}")
    expect(page.get_by_role("heading", level=1)).to_have_text(place.split("/")[-1])


def test_the_page_of_a_group_shows_its_last_hour(page: Page) -> None:
    asked = hour(page)
    to(page, "orders/groups/billing")
    own = page.get_by_role("region", name="The last hour")
    expect(own.locator("figure")).to_have_count(2)
    expect(own).to_contain_text("A point a minute, in the memory of this server since")
    own.get_by_text("Numbers").first.click()
    expect(own.get_by_role("row").filter(has_text="40")).not_to_have_count(0)
    assert [url.partition("?")[2] for url in asked] == ["group=billing"]


def test_the_groups_of_a_subject_have_lines_to_one_scale(page: Page) -> None:
    hour(page)
    to(page, "orders")
    groups = page.get_by_role("region", name="Groups side by side")
    lines = groups.locator("svg.sparkline")
    expect(lines).to_have_count(2)
    expect(lines.first).to_have_attribute("aria-label", "Waiting in the last hour: 10 to 40, last 11")
    heights = lines.evaluate_all("(all) => all.map((each) => each.querySelector('path').getBBox().y)")
    assert heights[0] > 15, "the short line lies low, because the other one reaches ten times as high"
    assert heights[1] < 5


def test_a_server_that_keeps_no_history_shows_none(page: Page) -> None:
    hour(page, since=None)
    to(page, "orders/groups/billing")
    expect(page.get_by_role("region", name="Progress in each queue")).to_be_visible()
    expect(page.get_by_role("region", name="The last hour")).to_have_count(0)
