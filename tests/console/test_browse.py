"""The page of messages: from the newest, an offset, a time, of a key, and by an id; each search is bounded."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console import scene
from tests.console.pages import Visits
from tests.integration.process import Server

BULK = 1_500
"""More messages than one press searches: ten pages of a hundred."""


@pytest.fixture(scope="module")
def filled(shop: Server) -> Server:
    with shop.connect() as connection:
        scene.send(connection, "bulk", [{"key": "needle", "body": "oldest"}])
        for start in range(0, BULK, 500):
            bodies = [{"body": f"straw {number}"} for number in range(start, start + 500)]
            scene.send(connection, "bulk", bodies)
    return shop


def browse(visits: Visits, server: Server, place: str, **how: Any) -> Page:
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/subjects/{place}", **how)
    expect(page.get_by_role("heading", level=1)).to_contain_text("Messages of")
    return page


def test_messages_are_shown_from_the_newest_from_an_offset_and_from_a_time(filled: Server, visits: Visits) -> None:
    page = browse(visits, filled, "bulk/browse", expected=("400",))
    messages = page.locator("details.message")
    expect(messages).to_have_count(50)
    expect(messages.first).to_contain_text(f"0:{BULK}")
    expect(page.get_by_role("status").filter(has_text="Queue 0")).to_contain_text("goes on at offset 1,450")
    page.get_by_role("button", name="More").click()
    expect(messages).to_have_count(100)
    expect(messages.last).to_contain_text(f"0:{BULK - 99}")

    page.get_by_label("Show", exact=True).select_option("offset")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="Offset")).to_contain_text("takes a whole number")
    page.get_by_label("Offset").fill("1490")
    page.get_by_label("Offset").press("Enter")
    expect(messages).to_have_count(BULK - 1490 + 1)
    expect(messages.first).to_contain_text("straw 1489")
    expect(page.get_by_role("status").filter(has_text="Queue 0")).to_contain_text("the end of the queue")

    page.get_by_label("Show", exact=True).select_option("time")
    page.get_by_label("Time (local)").fill("2020-01-01T00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(messages.first).to_contain_text("oldest")
    page.get_by_label("Show", exact=True).select_option("offset")
    page.get_by_label("Offset").fill("999999")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("main")).to_contain_text("beyond the queue's end")


def test_a_search_for_a_key_says_how_far_it_looked_and_goes_on(filled: Server, visits: Visits) -> None:
    page = browse(visits, filled, "bulk/browse?key=needle")
    status = page.get_by_role("status").filter(has_text="Queue 0")
    expect(status).to_have_text(
        "Queue 0: no message of the key among the newest 1,000; the search goes on at offset 500."
    )
    page.get_by_role("button", name="Look further").click()
    expect(page.locator("details.message")).to_have_count(1)
    expect(status).to_contain_text("1 message of the key among the newest 1,501; the search reached the oldest")


def test_a_key_is_looked_for_in_its_own_queue(filled: Server, visits: Visits) -> None:
    page = browse(visits, filled, "orders/browse?key=customer-3")
    messages = page.locator("details.message")
    expect(messages).to_have_count(7)
    messages.first.locator("summary").click()
    expect(messages.first.get_by_role("definition").filter(has_text="customer-3")).to_be_visible()


def test_an_id_is_found_without_a_time(filled: Server, visits: Visits) -> None:
    page = browse(visits, filled, "orders/browse?id=order-7", expected=("400", "404"))
    message = page.locator("details.message")
    expect(message).to_have_count(1)
    message.locator("summary").click()
    expect(message.get_by_role("link", name="order-7")).to_have_attribute("href", "#/subjects/orders/trace?id=0%3A3")
    expect(page.get_by_role("status").filter(has_text="found")).to_contain_text("1 message accepted since")
    page.get_by_label("Id").fill("no-such-order")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="found")).to_contain_text("No message accepted since")
