"""The page of a group shows its state; each act on it asks first and is done once."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console import scene
from tests.console.acting import answer, opened
from tests.console.pages import Visits
from tests.integration.process import Server, pull

GROUP = "/v1/subjects/orders/groups/billing"
LEDGER = "/v1/subjects/keys/groups/ledger"


@pytest.fixture(scope="module")
def filled(shop: Server) -> Server:
    """Returns the shop with an ordered group of which two keys have stopped."""
    shop.ok("PUT", LEDGER, {"ordered": True, "when_dead": "stop", "max_attempts": 1})
    messages = [{"key": key, "body": f"{key} {number}"} for number in (1, 2) for key in ("red", "blue")]
    scene.send(shop, "keys", messages)
    (pulled,) = pull(shop, subject="keys", group="ledger")
    dead = [{"index": index, "detail": "no such customer"} for index in range(len(pulled["messages"]))]
    settlement = {"receipt": pulled["receipt"], "dead": dead}
    shop.ok("POST", f"{LEDGER}/ack", {"settle": [settlement]})
    return shop


@pytest.fixture
def page(filled: Server, visits: Visits) -> Iterator[Page]:
    page = group_page(filled, visits, "orders/groups/billing")
    expect(page.get_by_role("region", name="Progress in each queue")).to_contain_text("64")
    return page


def group_page(server: Server, visits: Visits, place: str) -> Page:
    # An offset beyond the end is a 400, which the browser logs.
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/subjects/{place}", expected=("400 .*/seek",))
    expect(page.get_by_role("heading", level=1)).to_have_text(place.split("/")[-1])
    return page


def test_numbers_consumers_leases_and_retries_are_shown(filled: Server, page: Page) -> None:
    lag = filled.ok("GET", f"{GROUP}/lag")
    now = page.get_by_role("region", name="Now")
    for name, number in (("waiting", lag["waiting"]), ("in flight", lag["in_flight"]), ("dead", lag["dead"])):
        expect(now.locator("div.card").filter(has_text=name).get_by_role("definition")).to_have_text(str(number))
    consumers = page.get_by_role("region", name="Who pulled lately or holds leases")
    expect(consumers.get_by_role("row").filter(has_text="billing-2")).to_be_visible()
    leases = page.get_by_role("region", name="Open leases")
    expect(leases.get_by_role("row").filter(has_text="billing-2").first).to_be_visible()
    retries = page.get_by_role("region", name="Retries by attempt")
    retries.get_by_text("Numbers").click()
    backing_off = filled.ok("GET", f"{GROUP}/lag")["backing_off"]
    expect(retries.get_by_role("row").nth(1)).to_have_text(f"2{backing_off}")
    expect(retries).to_contain_text(f"0 can be pulled now, {backing_off} wait for their delay.")
    expect(page.get_by_role("region", name="Lag").locator("figure")).to_be_visible()


def test_messages_that_expired_unread_are_shown(page: Page) -> None:
    def altered(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "expired_unread": 7})

    page.route("**/lag", altered)
    card = page.get_by_role("region", name="Now").locator("div.card").filter(has_text="expired unread")
    expect(card.get_by_role("definition")).to_have_text("7")


def test_a_seek_to_an_offset_says_what_it_passes_over_or_serves_again_before_it_is_made(
    filled: Server, visits: Visits
) -> None:
    page = group_page(filled, visits, "orders/groups/mail")
    dialog = page.get_by_role("dialog")
    form = opened(page, "Seek")
    form.get_by_label("To", exact=True).select_option("offset")
    form.get_by_label("Offset").fill("999999")
    form.get_by_role("button", name="Count the messages…").click()
    expect(form.get_by_role("alert")).to_contain_text("beyond")
    form.get_by_label("Offset").fill("10")
    form.get_by_role("button", name="Count the messages…").click()
    expect(dialog).to_contain_text("46 messages are served again.")
    expect(dialog).to_contain_text("No message is passed over.")
    answer(page, "Move")
    (first, _) = filled.ok("GET", "/v1/subjects/orders/groups/mail/lag")["queues"]
    assert (first["queue"], first["offset"]) == (0, 10)


def test_settings_change_after_a_question_that_names_each_change(filled: Server, visits: Visits) -> None:
    page = group_page(filled, visits, "orders/groups/search")
    form = opened(page, "Settings")
    form.get_by_label("In flight at once").fill("1e9")
    form.get_by_role("button", name="Change…").click()
    expect(form.get_by_role("alert")).to_contain_text("In flight at once: takes a whole number from 0 to 1000000")
    form.get_by_label("In flight at once").fill("20")
    form.get_by_label("At least one of the tags").fill("eu, us")
    form.get_by_label("Push to").select_option("https")
    form.get_by_label("Address (url)").fill("https://example.com/hook")
    form.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_count(3)
    expect(dialog).to_contain_text("max_in_flight: 500 → 20")
    answer(page, "Change")
    group = filled.ok("GET", "/v1/subjects/orders/groups/search")
    assert (group["max_in_flight"], group["filter"]["tags_any"]) == (20, ["eu", "us"])
    assert (group["push"]["url"], group["push"]["batch"], group["max_attempts"]) == ("https://example.com/hook", 10, 16)
    push = page.get_by_role("region", name="Push")
    expect(push).to_contain_text("https://example.com/hook")
    expect(push).to_contain_text("paused")
    assert "whsec" not in page.content()


def test_a_stopped_key_is_decided(filled: Server, visits: Visits) -> None:
    page = group_page(filled, visits, "keys/groups/ledger")
    held = page.get_by_role("region", name="Keys whose first message failed")
    expect(held.get_by_role("row")).to_have_count(3)
    expect(held.get_by_role("row").filter(has_text="red")).to_contain_text("stopped rejected: no such customer")
    held.get_by_role("row").filter(has_text="red").get_by_role("button", name="Give up…").click()
    expect(page.get_by_role("dialog")).to_contain_text("Give up: the key red?")
    answer(page, "Give up")
    expect(held.get_by_role("row")).to_have_count(2)
    (letter,) = filled.ok("GET", f"{LEDGER}/dead")["messages"]
    assert letter["body"] == "red 1"
    page.get_by_role("region", name="Held keys").get_by_role("button", name="Retry…").last.click()
    answer(page, "Retry")
    expect(held).to_be_hidden()
    assert {message["body"] for one in pull(filled, subject="keys", group="ledger") for message in one["messages"]} == {
        "red 2",
        "blue 1",
        "blue 2",
    }


def test_the_leases_of_a_dead_consumer_are_ended(filled: Server, page: Page) -> None:
    consumers = page.get_by_role("region", name="Who pulled lately or holds leases")
    consumers.get_by_role("row").filter(has_text="billing-2").get_by_role("button", name="End leases…").click()
    answer(page, "End leases")
    expect(consumers.get_by_role("row").filter(has_text="billing-2").get_by_role("button")).to_have_count(0)
    rows = filled.ok("GET", f"{GROUP}/consumers")["consumers"]
    assert {row["consumer"]: row["leases"] for row in rows}["billing-2"] == 0


def test_a_part_that_fails_leaves_the_page_whole(filled: Server, visits: Visits) -> None:
    page = visits.open(f"http://127.0.0.1:{filled.port}/console/#/", expected=("503", "404"))
    page.route("**/consumers", lambda route: route.fulfill(status=503, json={"title": "Not now"}))
    page.route("**/retries", lambda route: route.fulfill(status=404, json={"type": "urn:hourwheel:route-unknown"}))
    page.evaluate("location.hash = '#/subjects/orders/groups/billing'")
    expect(page.get_by_role("region", name="Consumers")).to_contain_text("Not now")
    expect(page.get_by_role("region", name="Retries by attempt")).to_contain_text("not available on this server")
    expect(page.get_by_role("region", name="Progress in each queue")).to_be_visible()
    page.unroute("**/consumers")
    expect(page.get_by_role("region", name="Who pulled lately or holds leases")).to_be_visible()
    expect(page.get_by_role("region", name="Consumers")).not_to_contain_text("Not now")


def test_a_form_that_is_open_survives_a_change_by_somebody_else(filled: Server, page: Page) -> None:
    form = opened(page, "Settings")
    form.get_by_label("Attempts").fill("7")
    filled.ok("PUT", GROUP, {"messages_per_second": 1000})
    expect(page.get_by_role("region", name="Limits")).to_contain_text("1,000")
    expect(form.get_by_label("Attempts")).to_have_value("7")
    form.get_by_role("button", name="Change…").click()
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_text([re.compile("max_attempts: 3 → 7")])
    answer(page, "Change")
    group = filled.ok("GET", GROUP)
    assert (group["max_attempts"], group["messages_per_second"]) == (7, 1000)
