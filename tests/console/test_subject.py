"""The page of a subject shows its state; each act on it asks first and is done once."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.acting import answer, opened, read_only
from tests.console.pages import Visits
from tests.integration.process import Server

SUBJECT = "/v1/subjects/orders"


@pytest.fixture
def page(shop: Server, visits: Visits) -> Page:
    page = visits.open(
        f"http://127.0.0.1:{shop.port}/console/#/subjects/orders",
        expected=("502 .*Bad Gateway", "404 .*/groups/ledger"),
    )
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    expect(page.get_by_role("region", name="Groups side by side")).to_contain_text("billing")
    return page


def bodies(server: Server) -> list[str]:
    """Returns the bodies of the newest messages of both queues."""
    pages = [server.ok("GET", f"{SUBJECT}/queues/{queue}/messages?newest=true") for queue in (0, 1)]
    return [message["body"] for page in pages for message in page["messages"]]


def test_queues_and_groups_are_side_by_side(page: Page) -> None:
    groups = page.get_by_role("region", name="Groups side by side")
    expect(groups.get_by_role("row")).to_have_count(4)
    expect(groups.get_by_role("row").filter(has_text="search")).to_contain_text("paused")
    queues = page.get_by_role("region", name="Queues of the subject")
    expect(queues.get_by_role("row")).to_have_count(3)
    expect(queues.get_by_role("row").nth(1)).to_contain_text("home")


def test_a_test_message_is_stored_once_however_often_the_button_is_pressed(shop: Server, page: Page) -> None:
    form = opened(page, "Send a test message")
    form.get_by_label("Body", exact=True).fill('{"pressed": "twice"}')
    form.get_by_label("Key").fill("customer-42")
    form.get_by_label("Tags").fill("eu, test")
    form.get_by_label("Headers").fill("trace: abc")
    form.get_by_label("Key").press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    form.get_by_role("button", name="Send…").click()
    answer(page, "Send")
    link = form.get_by_role("link", name=re.compile(r"^1:\d+$"))  # the queue of this key, of two
    position = link.inner_text().split(":")
    assert bodies(shop).count('{"pressed": "twice"}') == 1
    (message,) = shop.ok("GET", f"{SUBJECT}/queues/1/messages?offset={position[1]}")["messages"]
    assert (message["key"], message["tags"], message["headers"]) == ("customer-42", ["eu", "test"], {"trace": "abc"})
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Messages of orders")
    expect(page.get_by_role("main")).to_contain_text(":".join(position))


def test_a_lost_answer_stores_no_second_message(shop: Server, page: Page) -> None:
    """The first answer is lost on its way back: the same press again gets the answer of the same message."""
    lost = []

    def lose(route: Route) -> None:
        if lost:
            route.continue_()
            return
        lost.append(route.fetch().status)
        route.fulfill(status=502, body="bad gateway")

    page.route(f"**{SUBJECT}/messages", lose)
    form = opened(page, "Send a test message")
    form.get_by_label("Body", exact=True).fill("lost")
    form.get_by_role("button", name="Send…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("502")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog).to_have_count(0)
    assert lost == [200]
    assert bodies(shop).count("lost") == 1


def test_an_empty_body_is_asked_about_and_a_delayed_message_can_be_followed(shop: Server, page: Page) -> None:
    before = shop.ok("GET", f"{SUBJECT}/scheduled")["messages"]
    form = opened(page, "Send a test message")
    form.get_by_label("Delivery").select_option("delay")
    form.get_by_label("Delay").fill("soon")
    form.get_by_role("button", name="Send…").click()
    expect(form.get_by_role("alert")).to_contain_text("Delay: takes a duration")
    form.get_by_label("Delay").fill("2h")
    form.get_by_role("button", name="Send…").click()
    expect(page.get_by_role("dialog")).to_contain_text("empty body")
    expect(page.get_by_role("dialog")).to_contain_text("in 2 h")
    answer(page, "Send")
    expect(form.get_by_role("link", name="its trace")).to_have_attribute("href", re.compile("trace\\?id="))
    assert shop.ok("GET", f"{SUBJECT}/scheduled")["messages"] == before + 1


def test_settings_change_after_a_question_that_names_each_change(shop: Server, page: Page) -> None:
    form = opened(page, "Settings")
    form.get_by_label("Retention").fill("31d")
    form.get_by_role("button", name="Change…").click()
    expect(form.get_by_role("alert")).to_contain_text("from 1m to 30d")
    form.get_by_label("Retention").fill("5d")
    form.get_by_role("button", name="Change…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    expect(dialog).to_contain_text("retention_seconds: 3d → 5d")
    answer(page, "Change")
    assert shop.ok("GET", SUBJECT)["retention_seconds"] == 5 * 86_400
    expect(page.get_by_role("main")).to_contain_text("5 d")
    form = opened(page, "Settings")
    expect(form.get_by_label("Retention")).to_have_value("5d")
    form.get_by_role("button", name="Change…").click()
    expect(form.get_by_role("alert")).to_contain_text("nothing was changed")


def test_a_subject_is_paused_and_resumed(shop: Server, page: Page) -> None:
    page.get_by_role("button", name="Pause…").click()
    answer(page, "Pause")
    expect(page.get_by_role("button", name="Resume…")).to_be_visible()
    assert shop.ok("GET", SUBJECT)["paused"]
    page.get_by_role("button", name="Resume…").click()
    answer(page, "Resume")
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
    assert not shop.ok("GET", SUBJECT)["paused"]


def test_a_new_group_has_the_settings_of_the_form_and_an_existing_one_is_unchanged(shop: Server, page: Page) -> None:
    form = opened(page, "Create a group")
    form.get_by_label("Name").fill("billing")
    form.get_by_label("Attempts").fill("9")
    form.get_by_role("button", name="Create…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("The group billing exists")
    dialog.get_by_role("button", name="Cancel").click()
    assert shop.ok("GET", f"{SUBJECT}/groups/billing")["max_attempts"] == 3
    form.get_by_label("Name").fill("ledger")
    form.get_by_label("Ordered").check()
    form.get_by_label("When a message is given up").select_option("stop")
    form.get_by_label("Retries", exact=True).select_option("list")
    form.get_by_label("Delays").fill("1s, 10s, 1m")
    form.get_by_role("button", name="Create…").click()
    answer(page, "Create")
    expect(page.get_by_role("heading", level=1)).to_have_text("ledger")
    group = shop.ok("GET", f"{SUBJECT}/groups/ledger")
    assert (group["max_attempts"], group["ordered"], group["when_dead"]) == (9, True, "stop")
    assert group["retry"] == {"delays_seconds": [1, 10, 60]}


def test_a_subject_is_deleted_once_its_name_was_typed(shop: Server, visits: Visits) -> None:
    shop.ok("PUT", "/v1/subjects/old", {})
    page = visits.open(f"http://127.0.0.1:{shop.port}/console/#/subjects/old")
    form = opened(page, "Delete the subject")
    form.get_by_label("Name of the subject").fill("orders")
    form.get_by_role("button", name="Delete…").click()
    expect(form.get_by_role("alert")).to_contain_text("is not old")
    form.get_by_label("Name of the subject").fill("old")
    form.get_by_role("button", name="Delete…").click()
    answer(page, "Delete")
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    assert shop.call("GET", "/v1/subjects/old").status == 404


def test_an_unknown_subject_is_told_and_shown_once_it_exists(shop: Server, visits: Visits) -> None:
    page = visits.open(f"http://127.0.0.1:{shop.port}/console/#/subjects/later", expected=("404",))
    expect(page.get_by_role("alert").filter(has_text="later")).to_be_visible()
    shop.ok("PUT", "/v1/subjects/later", {})
    expect(page.get_by_role("region", name="Queues of the subject")).to_contain_text("home")
    expect(page.get_by_role("alert").filter(has_text="later")).to_have_count(0)


def test_the_read_only_console_shows_no_act(page: Page) -> None:
    read_only(page)
    expect(page.get_by_role("region", name="Groups side by side")).to_contain_text("billing")
    expect(page.get_by_role("button", name=re.compile("…$"))).to_have_count(0)
    expect(page.get_by_role("heading", name="Send a test message")).to_have_count(0)
