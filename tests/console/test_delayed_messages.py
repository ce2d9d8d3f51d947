"""The list of delayed messages on the page of an hour shows them page by page, and acts on them."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console import scene
from tests.console.acting import answer, read_only
from tests.console.axe import violations
from tests.console.pages import Visits
from tests.integration.process import Server

# An hour that no test reaches, and that lies within one day of every zone.
HOUR = (datetime.now(UTC) + timedelta(days=5)).replace(hour=11, minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("delayed") / "data")
    yield started
    started.kill()
    started.process.close()


def at(minute: int, second: int = 0) -> str:
    return (HOUR + timedelta(minutes=minute, seconds=second)).isoformat()


def send(server: Server, subject: str, *messages: dict[str, Any]) -> list[str]:
    answer = server.ok("POST", f"/v1/subjects/{subject}/messages", {"messages": list(messages)})
    return [result["scheduled_id"] for result in answer["results"]]


def open_hour(server: Server, visits: Visits, subject: str | None, more: str = "", **how: Any) -> Page:
    query = f"level=hour&at={HOUR.timestamp() * 1_000:.0f}{more}" + ("" if subject is None else f"&subject={subject}")
    return visits.open(f"http://127.0.0.1:{server.port}/console/#/delayed?{query}", **how)


def rows_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Delayed messages", exact=True).get_by_role("row")


def confirmed(page: Page, button: str, says: str) -> Locator:
    """Checks the text of the question, and presses its button twice: the act is done once."""
    expect(page.get_by_role("dialog")).to_contain_text(says)
    answer(page, button)
    return page.locator("#toasts")


def test_messages_of_an_hour_are_moved_and_cancelled_one_by_one(server: Server, visits: Visits) -> None:
    ids = send(
        server,
        "reminders",
        *({"id": f"reminder-{i}", "key": f"customer-{i}", "body": "x", "deliver_at": at(30 - i)} for i in range(3)),
    )
    page = open_hour(server, visits, "reminders")
    rows = rows_of(page)
    expect(rows).to_have_count(4)
    expect(rows.locator("th[scope=row]")).to_have_text(["reminder-2", "reminder-1", "reminder-0"])
    first = rows.filter(has_text="reminder-2")
    expect(first).to_contain_text("customer-2")
    expect(first).to_contain_text("waiting")

    first.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("dialog").get_by_role("button")).to_have_text(["Keep it", "Cancel the message"])
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert server.ok("GET", f"/v1/scheduled/{ids[2]}")["state"] == "waiting", "the question was answered with no"
    first.get_by_role("button", name="Cancel…").click()
    toasts = confirmed(page, "Cancel the message", "The message reminder-2 of reminders, due ")
    expect(toasts).to_contain_text("The message is cancelled.")
    expect(first).to_contain_text("cancelled")
    expect(first.get_by_role("button")).to_have_text(["reminder-2"])
    assert server.ok("GET", f"/v1/scheduled/{ids[2]}")["state"] == "cancelled"

    rows.filter(has_text="reminder-1").get_by_role("button", name="Move").click()
    page.get_by_role("dialog").get_by_label("Or a delay from now").fill("30d")
    toasts = confirmed(page, "Move the message", "A time in the past sends it now.")
    expect(toasts).to_contain_text("The message is due ")
    expect(rows.filter(has_text="reminder-1")).to_contain_text("moved")
    moved = server.ok("GET", f"/v1/scheduled/{ids[1]}")
    assert moved["deliver_at"] > at(0)
    assert server.ok("GET", "/v1/subjects/reminders/scheduled?hours=744")["messages"] == 2


def test_bodies_keys_and_tags_are_shown_as_text_and_only_their_beginnings(server: Server, visits: Visits) -> None:
    mean = {"key": scene.ESCAPES, "tags": ["<b>tag</b>"], "body": json.dumps({"note": scene.HOSTILE})}
    send(
        server,
        "hostile",
        {"id": "mean", "deliver_at": at(1), **mean},
        {"id": "long", "deliver_at": at(2), "body": "ab" * 1_000},
        {"id": "binary", "deliver_at": at(3), "body_base64": "AAECA/8="},
    )
    page = open_hour(server, visits, "hostile")
    main = page.get_by_role("main")
    page.get_by_role("button", name="mean", exact=True).click()
    expect(page.get_by_role("heading", name="Message mean")).to_be_focused()
    expect(page.get_by_role("region", name="Body")).to_contain_text("<img src=x onerror=")
    expect(rows_of(page).filter(has_text="mean")).to_contain_text("\u241b[31mred")
    expect(rows_of(page).filter(has_text="mean")).to_contain_text("<b>tag</b>")
    page.get_by_role("button", name="long", exact=True).click()
    expect(main).to_contain_text("Only the beginning of the body is shown: the message has 2,000 bytes in all.")
    assert len(page.get_by_role("region", name="Body").inner_text()) == 1_000
    page.get_by_role("button", name="binary", exact=True).click()
    expect(page.get_by_role("region", name="Body")).to_contain_text("00 01 02 03 ff")
    expect(main).not_to_contain_text("Only the beginning")
    assert page.evaluate("window.stolen") is None
    assert page.locator("main img, main script, section[aria-label=Messages] b").count() == 0
    assert not set("\x1b\x07\u202e").intersection(main.inner_text())


def test_a_minute_is_chosen_in_the_chart_and_pages_go_on(server: Server, visits: Visits) -> None:
    send(server, "many", *({"id": f"m-{i:03}", "body": "x", "deliver_at": at(40, i % 60)} for i in range(120)))
    send(server, "many", {"id": "other", "body": "x", "deliver_at": at(41)})
    page = open_hour(server, visits, "many")
    rows = rows_of(page)
    expect(rows).to_have_count(51)
    page.get_by_role("link", name="Next page").click()
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(22)
    expect(rows.last).to_contain_text("other")
    page.get_by_role("link", name="First page").click()
    expect(rows).to_have_count(51)
    due = page.get_by_role("region", name="Due", exact=True)
    due.get_by_text("Numbers", exact=True).click()
    minute = due.get_by_role("row").filter(has=page.get_by_role("cell", name="1", exact=True))
    minute.get_by_role("button").click()
    expect(page).to_have_url(re.compile("minute="))
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("other")
    page.get_by_role("link", name="Show the whole hour").click()
    expect(rows).to_have_count(51)


def test_the_list_of_all_subjects_names_them_and_axe_finds_nothing(server: Server, visits: Visits) -> None:
    send(server, "a-1", {"id": "one", "body": "x", "tags": ["eu", "vip"], "deliver_at": at(50)})
    minute = (HOUR + timedelta(minutes=50)).timestamp() * 1_000
    page = open_hour(server, visits, None, f"&minute={minute:.0f}", bypass_csp=True)
    row = rows_of(page).filter(has_text="one")
    expect(row.get_by_role("link", name="a-1")).to_have_attribute("href", "#/subjects/a-1")
    expect(row).to_contain_text("eu, vip")
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert not violations(page)
        sideways = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert sideways == 0, f"the page scrolls sideways at {width} pixels"


def test_the_read_only_console_shows_messages_without_acts(server: Server, visits: Visits) -> None:
    send(server, "looked-at", {"id": "kept", "body": "x", "deliver_at": at(20)})
    page = open_hour(server, visits, "looked-at")
    expect(rows_of(page).last.get_by_role("button")).to_have_text(["kept", "Move…", "Cancel…"])
    read_only(page)
    row = rows_of(page).last
    expect(row).to_contain_text("waiting")
    expect(row.get_by_role("button")).to_have_text(["kept"])
    expect(rows_of(page).first).not_to_contain_text("Acts")


def test_an_hour_without_messages_and_a_longer_span_say_so(server: Server, visits: Visits) -> None:
    server.ok("PUT", "/v1/subjects/empty", {})
    page = open_hour(server, visits, "empty")
    expect(page.get_by_text("No delayed message is here.")).to_be_visible()
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/delayed?subject=empty")
    expect(page.get_by_role("region", name="Due", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Messages", exact=True)).to_have_count(0)
    page = open_hour(server, visits, "nothing", expected=("404",))
    expect(page.get_by_role("region", name="Messages", exact=True)).to_contain_text("nothing")


def test_the_next_messages_come_first_and_a_filter_chooses_some(server: Server, visits: Visits) -> None:
    soon = [{"id": f"order-{i}", "key": f"customer-{i % 3}", "body": "x", "delay": 3_000 + i} for i in range(60)]
    send(server, "next", *soon, {"id": "late", "tags": ["vip"], "body": "x", "delay": "300d"})
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/delayed?subject=next")
    rows = rows_of(page)
    expect(rows).to_have_count(51)
    expect(rows.nth(1)).to_contain_text("order-0")
    sections = page.get_by_role("main").get_by_role("region")
    expect(sections.first).to_have_accessible_name("Next messages")
    for label, text, shown in (("Tag", "vip", ["late"]), ("Id that the sender gave", "order-7", ["order-7"])):
        field = page.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")
        expect(rows.locator("th[scope=row]")).to_have_text(shown)
        field.fill("")
    page.get_by_label("Key", exact=True).fill("customer-2")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(rows).to_have_count(21)


def test_a_bar_of_the_chart_is_opened_by_a_button_and_wheels_are_folded(server: Server, visits: Visits) -> None:
    send(server, "bars", {"id": "far", "body": "x", "delay": "300d"})
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/delayed?subject=bars")
    expect(rows_of(page)).to_have_count(2)
    page.get_by_role("button", name=re.compile("^Show the month: ")).click()
    expect(page).to_have_url(re.compile("level=month"))
    expect(rows_of(page)).to_have_count(2)
    expect(page.get_by_role("region", name="Open buckets")).to_have_count(0)
    page.get_by_text("Wheels: who hands").click()
    expect(page.get_by_role("region", name="Open buckets")).to_be_visible()
