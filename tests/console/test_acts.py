"""Each act of the pages asks first, makes its call to the server, and shows the result."""

import pytest
from playwright.sync_api import Page, expect

from tests.console import scene
from tests.console.pages import Visits
from tests.console.routes import address
from tests.integration.process import Server

BILLING = "/v1/subjects/orders/groups/billing"


@pytest.fixture(scope="module")
def scheduled() -> list[str]:
    return []


@pytest.fixture(scope="module")
def server(server: Server, scheduled: list[str]) -> Server:
    with server.connect() as connection:
        scheduled += scene.fill(connection)
    return server


def confirm(page: Page, button: str, *texts: str) -> None:
    """Presses the button of the question, which must say these texts, and waits until it is answered."""
    dialog = page.get_by_role("dialog")
    for text in texts:
        expect(dialog).to_contain_text(text)
    dialog.get_by_role("button", name=button, exact=True).click()
    expect(dialog).to_have_count(0)


def opened(page: Page, title: str) -> None:
    page.locator("details", has=page.get_by_role("heading", name=title, exact=True)).locator("summary").click()


def test_a_group_is_paused_and_resumed(server: Server, visits: Visits) -> None:
    page = visits.open(address(server, "#/subjects/orders/groups/mail"))
    page.get_by_role("button", name="Pause…").click()
    confirm(page, "Pause", "Pulls get no messages")
    expect(page.get_by_role("button", name="Resume…")).to_be_visible()
    assert server.ok("GET", "/v1/subjects/orders/groups/mail")["paused"]
    page.get_by_role("button", name="Resume…").click()
    confirm(page, "Resume")
    expect(page.get_by_role("button", name="Pause…")).to_be_visible()
    assert not server.ok("GET", "/v1/subjects/orders/groups/mail")["paused"]


def test_a_seek_says_how_many_messages_it_concerns_first(server: Server, visits: Visits) -> None:
    page = visits.open(address(server, "#/subjects/orders/groups/mail"))
    opened(page, "Seek")
    page.get_by_role("button", name="Count the messages…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("120 messages are served again")
    assert server.ok("GET", "/v1/subjects/orders/groups/mail/lag")["waiting"] == 0
    confirm(page, "Move")
    assert server.ok("GET", "/v1/subjects/orders/groups/mail/lag")["waiting"] == 120


def test_a_test_message_is_sent_once(server: Server, visits: Visits) -> None:
    before = server.ok("GET", "/v1/subjects/shipments/groups/tracking/lag")["waiting"]
    page = visits.open(address(server, "#/subjects/shipments"))
    opened(page, "Send a test message")
    page.get_by_label("Body", exact=True).fill('{"test": "<b>ä</b>"}')
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_role("button", name="Send…").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Send", exact=True)
    button.evaluate("button => { button.click(); button.click(); }")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert server.ok("GET", "/v1/subjects/shipments/groups/tracking/lag")["waiting"] == before + 1


def test_settings_of_a_subject_change(server: Server, visits: Visits) -> None:
    page = visits.open(address(server, "#/subjects/shipments"))
    opened(page, "Settings")
    page.get_by_label("Read-only: new messages are refused").check()
    page.get_by_role("button", name="Change…").click()
    confirm(page, "Change", "read_only")
    expect(page.locator(".badge", has_text="read-only")).to_be_visible()
    assert server.ok("GET", "/v1/subjects/shipments")["read_only"]


def test_dead_letters_are_redriven_and_dropped(server: Server, visits: Visits) -> None:
    page = visits.open(address(server, "#/subjects/orders/groups/billing/dead"))
    boxes = page.get_by_role("checkbox", name="Choose order-")
    expect(boxes).to_have_count(scene.PAYMENTS + scene.SHIPMENTS)
    boxes.first.check()
    page.get_by_role("button", name="Redrive the chosen").click()
    confirm(page, "Redrive")
    expect(boxes).to_have_count(scene.PAYMENTS + scene.SHIPMENTS - 1)
    boxes.first.check()
    page.get_by_role("button", name="Drop the chosen").click()
    confirm(page, "Drop for ever")
    expect(boxes).to_have_count(scene.PAYMENTS + scene.SHIPMENTS - 2)
    assert server.ok("GET", f"{BILLING}/lag")["dead"] == scene.PAYMENTS + scene.SHIPMENTS - 2


def test_a_delayed_message_is_moved_and_cancelled(server: Server, visits: Visits, scheduled: list[str]) -> None:
    found = scheduled[-1]
    page = visits.open(address(server, f"#/delayed?subject=reminders&id={found}"), expected=["404"])
    page.get_by_role("button", name="Move", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox", name="delay").fill("3d")
    confirm(page, "Move the message", "reminder-9")
    expect(page).not_to_have_url(address(server, f"#/delayed?subject=reminders&id={found}"))
    page.get_by_role("button", name="Cancel the message").click()
    confirm(page, "Cancel the message", "will never be sent")
    expect(page.locator(".badge", has_text="cancelled")).to_be_visible()
    moved = page.url.partition("id=")[2].partition("&")[0]
    assert server.ok("GET", f"/v1/scheduled/{moved}")["state"] == "cancelled"


def test_a_group_is_deleted_only_by_its_name(server: Server, visits: Visits) -> None:
    page = visits.open(address(server, "#/subjects/orders/groups/search"))
    opened(page, "Delete the group")
    page.get_by_label("Name of the group").fill("mail")
    page.get_by_role("button", name="Delete…").click()
    expect(page.get_by_role("alert").filter(has_text="is not search")).to_be_visible()
    page.get_by_label("Name of the group").fill("search")
    page.get_by_role("button", name="Delete…").click()
    confirm(page, "Delete", "cannot be undone")
    expect(page).to_have_url(address(server, "#/subjects/orders"))
    assert server.call("GET", "/v1/subjects/orders/groups/search").status == 404
