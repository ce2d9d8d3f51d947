"""The pages of delayed messages, of dead letters, and of the trace show them, and act on them."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.console.pages import Visits
from tests.integration.process import Server

MARKUP = "<img src=x onerror=\"document.title='markup'\">"
ESCAPES = "a\x1b[31mred\u202e"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server(tmp_path_factory.mktemp("letters") / "data")
    yield started
    started.kill()
    started.process.close()


def send(server: Server, subject: str, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    return list(server.ok("POST", f"/v1/subjects/{subject}/messages", {"messages": list(messages)})["results"])


def give_up(server: Server, subject: str, details: list[str], **fields: str) -> None:
    """Sends one message for each detail, which the group ``billing`` rejects with that detail."""
    server.ok("PUT", f"/v1/subjects/{subject}/groups/billing", {})
    send(server, subject, *({"id": f"order-{i}", "body": "{}", **fields} for i in range(len(details))))
    group = f"/v1/subjects/{subject}/groups/billing"
    left = details
    while left:
        request = {"consumer": "c-1", "max_messages": min(len(left), 100)}
        for pulled in server.ok("POST", f"{group}/pull", request)["pulls"]:
            now, left = left[: len(pulled["messages"])], left[len(pulled["messages"]) :]
            dead = [{"index": i, "detail": detail} for i, detail in enumerate(now)]
            server.ok("POST", f"{group}/ack", {"settle": [{"receipt": pulled["receipt"], "dead": dead}]})


def dead_of(server: Server, subject: str) -> list[str]:
    page = server.ok("GET", f"/v1/subjects/{subject}/groups/billing/dead")
    return [letter["id"] for letter in page["messages"]]


def open_page(server: Server, visits: Visits, place: str, *expected: str) -> Page:
    return visits.open(f"http://127.0.0.1:{server.port}/console/#/{place}", expected=expected)


def confirmed(page: Page, button: str, says: str) -> Locator:
    """Checks the text of the question, and presses its button twice: the act is done once."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(says)
    dialog.get_by_role("button", name=button, exact=True).dblclick()
    expect(dialog).to_have_count(0)
    return page.locator("#toasts")


def test_dead_letters_are_redriven_and_dropped_one_by_one_chosen_or_all(server: Server, visits: Visits) -> None:
    give_up(server, "orders", ["the order is empty"] * 3 + ["no such customer"] * 2)
    page = open_page(server, visits, "subjects/orders/groups/billing/dead")
    letters = page.get_by_role("region", name="Dead letters", exact=True)
    expect(letters.get_by_role("row")).to_have_count(6)

    letters.get_by_role("button", name="order-1", exact=True).click()
    expect(page.get_by_role("heading", name="Message order-1")).to_be_focused()
    page.locator(".card").get_by_role("button", name="Redrive").click()
    toasts = confirmed(page, "Redrive", "1 dead letter will be handed to this group again")
    expect(toasts).to_contain_text("1 dead letter redriven.")
    expect(letters.get_by_role("row")).to_have_count(5)

    for name in ("order-0", "order-3"):
        page.get_by_role("checkbox", name=f"Choose {name}").check()
    page.get_by_role("button", name="Drop the chosen").click()
    toasts = confirmed(page, "Drop for ever", "2 dead letters will be dropped for ever")
    expect(toasts).to_contain_text("2 dead letters dropped.")
    assert dead_of(server, "orders") == ["order-2", "order-4"]

    page.get_by_role("button", name="Redrive all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert dead_of(server, "orders") == ["order-2", "order-4"]
    page.get_by_role("button", name="Redrive all").click()
    toasts = confirmed(page, "Redrive", "2 dead letters will be handed to this group again")
    expect(toasts).to_contain_text("2 dead letters redriven.")
    expect(page.get_by_text("The group has no dead letters.").last).to_be_visible()
    assert dead_of(server, "orders") == []


def test_the_letters_of_one_reason_are_dropped_page_by_page(server: Server, visits: Visits) -> None:
    give_up(server, "many", ["the order is empty"] * 120 + ["no such customer"] * 3)
    page = open_page(server, visits, "subjects/many/groups/billing/dead")
    reasons = page.get_by_role("region", name="Dead letters by reason")
    reasons.get_by_role("row").filter(has_text="the order is empty").get_by_role("link").click()
    expect(page).to_have_url(re.compile("detail=the"))
    page.get_by_role("button", name="Drop all of this reason").click()
    toasts = confirmed(page, "Drop for ever", "120 dead letters will be dropped for ever")
    expect(toasts).to_contain_text("120 dead letters dropped.")
    expect(page.get_by_text("No dead letter on this page has this reason.")).to_be_visible()
    assert dead_of(server, "many") == ["order-120", "order-121", "order-122"]


def test_letters_whose_attempts_are_used_up_are_grouped_by_the_error_of_the_last_one(
    server: Server, visits: Visits
) -> None:
    group = "/v1/subjects/failing/groups/billing"
    server.ok("PUT", group, {"max_attempts": 1})
    send(server, "failing", *({"id": f"order-{i}", "body": "{}"} for i in range(3)))
    (pulled,) = server.ok("POST", f"{group}/pull", {"consumer": "c-1"})["pulls"]
    errors = ["ValueError: no price", "ValueError: no price", f"OSError: {MARKUP}{ESCAPES}"]
    retry = [{"index": i, "detail": error} for i, error in enumerate(errors)]
    server.ok("POST", f"{group}/ack", {"settle": [{"receipt": pulled["receipt"], "retry": retry}]})
    page = open_page(server, visits, "subjects/failing/groups/billing/dead")
    reasons = page.get_by_role("region", name="Dead letters by reason").get_by_role("row")
    expect(reasons.filter(has_text="ValueError: no price")).to_contain_text("attempts used up")
    expect(reasons.filter(has_text="OSError")).to_contain_text("<img src=x onerror=")
    expect(reasons.filter(has_text="OSError")).to_contain_text("a\u241b[31mred")
    reasons.filter(has_text="ValueError: no price").get_by_role("link").click()
    letters = page.get_by_role("region", name="Dead letters", exact=True).get_by_role("row")
    expect(letters).to_have_count(3)
    expect(letters.last).to_contain_text("ValueError: no price")
    assert page.locator("main img").count() == 0
    page = open_page(server, visits, "subjects/failing/trace?id=0:0")
    expect(page.locator("ol.timeline li").last).to_contain_text("Became a dead letter: attempts: ValueError: no price")


def test_bodies_and_headers_are_shown_as_text(server: Server, visits: Visits) -> None:
    body = json.dumps({"note": MARKUP, "number": 1}).replace("1}", "12345678901234567890}")
    server.ok("PUT", "/v1/subjects/hostile/groups/billing", {})
    send(
        server, "hostile", {"id": "evil", "key": ESCAPES, "headers": {"h": MARKUP}, "tags": [MARKUP[:20]], "body": body}
    )
    page = open_page(server, visits, "subjects/hostile/trace?id=0:0")
    expect(page.get_by_role("heading", name="Message evil")).to_be_visible()
    shown = page.get_by_role("region", name="Body")
    expect(shown).to_contain_text('"number": 12345678901234567890')
    expect(shown).to_contain_text("<img src=x onerror=")
    expect(page.get_by_text(re.compile("^a\u241b\\[31mred.U\\+202E.$"))).to_be_visible()
    expect(page.get_by_role("definition").filter(has_text=MARKUP)).to_be_visible()
    page.get_by_role("button", name="Hex").click()
    expect(shown).to_contain_text('00000000  7b 22 6e 6f 74 65 22 3a  20 22 3c 69 6d 67 20 73  {"note": "<img s')
    assert page.locator("main img").count() == 0
    assert "markup" not in page.title()


def test_a_body_of_a_mebibyte_is_shown_page_by_page(server: Server, visits: Visits) -> None:
    server.ok("PUT", "/v1/subjects/large/groups/billing", {})
    send(server, "large", {"id": "large", "body": "x" * 1_040_000})
    page = open_page(server, visits, "subjects/large/trace?id=0:0")
    pages = page.get_by_role("region", name="Body")
    expect(pages).to_have_count(1)
    assert len(pages.inner_text()) == 65_536
    page.get_by_role("button", name="Show more").click()
    expect(pages).to_have_count(2)
    expect(pages.nth(1)).to_be_focused()


def test_a_trace_tells_what_a_group_did(server: Server, visits: Visits) -> None:
    give_up(server, "traced", ["the order is empty"])
    page = open_page(server, visits, "subjects/traced/trace?id=0:0", "404 .*0%3A99")
    events = page.locator("ol.timeline li")
    expect(events).to_have_text(
        [
            re.compile("Accepted$"),
            re.compile("Pulled by c-1, attempt 1, leased until "),
            re.compile("Became a dead letter"),
        ]
    )
    field = page.get_by_label("Id, scheduled_id, or queue:offset")
    field.fill("0:99")
    page.get_by_role("button", name="Trace", exact=True).click()
    expect(page.get_by_text("No message has this offset yet.")).to_be_visible()


def test_a_delayed_message_is_looked_up_moved_and_cancelled(server: Server, visits: Visits) -> None:
    (sent,) = send(server, "reminders", {"id": "reminder-1", "body": "remind", "delay": "30d"})
    page = open_page(server, visits, "delayed?subject=reminders")
    expect(page.get_by_text("1 message is due in this span.")).to_be_visible()
    due = page.get_by_role("region", name="Due", exact=True)
    for bar, opened in (("month", "day"), ("day", "hour"), ("hour", "minute")):
        chart = page.get_by_role("slider", name=re.compile(f"^Messages due by {bar}"))
        chart.press("Home")
        expect(chart).to_have_attribute("aria-valuetext", re.compile(": due [01]$"))
        due.get_by_text("Numbers", exact=True).click()
        row = due.get_by_role("row").filter(has=page.get_by_role("cell", name="1", exact=True))
        row.get_by_role("button").click()
        expect(page.get_by_role("slider", name=re.compile(f"^Messages due by {opened}"))).to_be_visible()
        expect(page.get_by_text("1 message is due in this span.")).to_be_visible()
    expect(page.get_by_role("navigation", name="Span of the chart").get_by_role("link")).to_have_count(3)
    page.get_by_text("Wheels: who hands").click()
    wheels = page.get_by_role("table", name="Open buckets")
    expect(wheels.get_by_role("row").last).to_contain_text("waiting")
    expect(page.get_by_role("slider", name=re.compile("^How late messages were"))).to_be_visible()
    page.get_by_label("Id that the server gave").fill(sent["scheduled_id"])
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("definition").filter(has_text="waiting")).to_be_visible()

    page.get_by_role("button", name="Move", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Move the message").click()
    expect(dialog).to_contain_text("Fill one of the two fields")
    dialog.get_by_label("Or a delay from now").fill("2d")
    toasts = confirmed(page, "Move the message", "The message reminder-1 of reminders, due ")
    expect(toasts).to_contain_text("The message is due ")
    moved = server.ok("GET", f"/v1/scheduled/{sent['scheduled_id']}")
    assert moved["deliver_at"] < sent["scheduled"]

    expect(page).to_have_url(re.compile(f"id={moved['scheduled_id']}"))
    page.get_by_role("button", name="Cancel the message").click()
    toasts = confirmed(page, "Cancel the message", "will never be sent. This cannot be undone.")
    expect(toasts).to_contain_text("The message is cancelled.")
    expect(page.get_by_role("definition").filter(has_text="cancelled")).to_be_visible()
    assert server.ok("GET", f"/v1/scheduled/{sent['scheduled_id']}")["state"] == "cancelled"
