"""Faults between a page and its server are shown and recovered from, and each act is done once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Request, Route, expect

from tests.console import scene
from tests.console.pages import Visits, try_now
from tests.console.routes import address
from tests.integration.process import Server

REFUSED = r"ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE"

Begin = Callable[..., Server]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts servers on one data directory with a second cell, which are stopped at the end."""
    started: list[Server] = []

    def start(**options: Any) -> Server:
        started.append(Server(tmp_path / "home", cells={"fast": tmp_path / "fast"}, **options))
        return started[-1]

    yield start
    for server in started:
        server.kill()
        server.process.close()


def test_a_server_that_goes_and_comes_back_is_told_and_read_again(begin: Begin, visits: Visits) -> None:
    server = begin()
    scene.send(server, "orders", scene.orders(0, 3))
    page = visits.open(address(server, "#/cells?subject=orders"), expected=[REFUSED])
    queues = page.get_by_role("region", name="Queues of orders")
    expect(queues.get_by_role("row")).to_have_count(2)
    server.kill()
    banner = page.locator("#banner").filter(has_text="The server cannot be reached")
    page.keyboard.press("r")
    expect(banner).to_be_visible()
    expect(queues.get_by_role("row")).to_have_count(2)  # the page keeps the rows that it has read
    again = begin(port=server.port)
    again.ok("POST", "/v1/subjects/orders/queues", {"queues": 2})
    try_now(page)
    expect(banner).to_have_count(0)
    expect(queues.get_by_role("row")).to_have_count(3)


def test_a_wrong_token_is_refused_and_the_right_one_lasts_in_its_tab(begin: Begin, visits: Visits) -> None:
    server = begin(tokens=["secret-of-the-shop"])
    page = visits.open(address(server, "#/cells"), expected=["401"])
    field = page.get_by_label("Token")
    field.fill("wrong")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()
    field.fill("secret-of-the-shop")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("region", name="Cells", exact=True)).to_contain_text("home")
    expect(field).to_have_count(0)
    page.reload()
    expect(page.get_by_role("region", name="Cells", exact=True)).to_contain_text("home")
    assert "secret" not in page.url
    assert page.evaluate("Object.values(localStorage).join()") == ""
    other = visits.open(address(server, "#/cells"), expected=["401"])
    expect(other.get_by_label("Token")).to_be_visible()


def test_a_token_that_may_only_read_gets_a_console_without_acts(begin: Begin, visits: Visits) -> None:
    server = begin(tokens=["writer"], read_only_tokens=["reader"])
    with server.connect(token="writer") as writer:
        writer.ok("PUT", "/v1/subjects/orders", {"queues": 2})
        writer.ok("PUT", "/v1/cells/fast", {})
    page = visits.open(address(server, "#/cells?subject=orders"), expected=["401"])
    page.get_by_label("Token").fill("reader")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("region", name="Queues of orders").get_by_role("row")).to_have_count(3)
    expect(page.get_by_text("read-only", exact=True)).to_be_visible()
    for act in ("Move…", "Drain…", "Remove…", "Add queues…"):
        expect(page.get_by_role("button", name=act)).to_have_count(0)


def test_a_button_that_is_pressed_twice_acts_once(begin: Begin, visits: Visits) -> None:
    server = begin()
    server.ok("PUT", "/v1/subjects/orders", {"queues": 1})
    server.ok("PUT", "/v1/cells/fast", {})
    page = visits.open(address(server, "#/cells?subject=orders"))
    page.get_by_role("button", name="Move…", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what changes…").click()
    move = dialog.get_by_role("button", name="Move", exact=True)
    sent: list[Request] = []
    held: list[Route] = []
    page.on("request", lambda request: sent.append(request) if request.method == "POST" else None)
    page.route("**/queues/0/move", lambda route: held.append(route))
    with page.expect_request("**/queues/0/move"):
        move.evaluate("button => { button.click(); button.click(); button.form.requestSubmit(); }")
    expect(move).to_be_disabled()
    page.wait_for_function("() => true")  # the requests that the page sent meanwhile have come, too
    held[0].continue_()
    expect(dialog).to_have_count(0)
    assert len(sent) == 1
    assert len(held) == 1


def test_an_act_that_the_server_refuses_shows_why_and_can_be_pressed_again(begin: Begin, visits: Visits) -> None:
    server = begin()
    server.ok("PUT", "/v1/subjects/orders", {"queues": 1})
    server.ok("PUT", "/v1/cells/fast", {})
    page = visits.open(address(server, "#/cells?subject=orders"), expected=["409"])
    page.get_by_role("button", name="Move…", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Show what changes…").click()
    expect(dialog).to_contain_text("no longer to home")
    server.ok("PUT", "/v1/cells/fast", {"state": "read_only"})
    move = dialog.get_by_role("button", name="Move", exact=True)
    move.click()
    expect(dialog.get_by_role("alert")).to_contain_text("fast")
    server.ok("PUT", "/v1/cells/fast", {"state": "normal"})
    move.click()
    expect(dialog).to_have_count(0)
    route = server.ok("GET", "/v1/routes/orders")["queues"][0]
    assert route["mappings"][-1]["cell"] == "fast"
