"""The page of cells shows them; before each act it asks the server for the result of a dry run."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console import scene
from tests.console.pages import Visits
from tests.integration.process import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("cells")
    started = Server(folder / "home", cells={"fast": folder / "fast"})
    started.ok("PUT", "/v1/cells/fast", {})
    started.ok("PUT", "/v1/subjects/orders", {"queues": 2})
    scene.send(started, "orders", scene.orders(0, 20))
    yield started
    started.kill()
    started.process.close()


def cells_of(server: Server) -> list[str]:
    route = server.ok("GET", "/v1/routes/orders")
    return [queue["mappings"][-1]["cell"] for queue in route["queues"]]


def act(page: Page, row: str, button: str) -> None:
    page.get_by_role("row").filter(has_text=row).get_by_role("button", name=button, exact=True).click()


def test_a_queue_moves_after_a_question_that_shows_the_change(server: Server, visits: Visits) -> None:
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/cells?subject=orders")
    queues = page.get_by_role("region", name="Queues of orders")
    expect(queues.get_by_role("row")).to_have_count(3)
    queues.get_by_role("button", name="Move…").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("combobox").locator("option")).to_have_text(["fast"])
    dialog.get_by_role("button", name="Show what changes…").click()
    expect(dialog).to_contain_text("New messages of queue 0 go to fast, no longer to home.")
    assert cells_of(server) == ["home", "home"]
    dialog.get_by_role("button", name="Move", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(queues).to_contain_text("in fast")
    assert cells_of(server) == ["fast", "home"]

    page.get_by_role("button", name="Add queues…").click()
    dialog.get_by_role("button", name="Show what changes…").click()
    expect(dialog).to_contain_text("Queue 2 is new")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(queues.get_by_role("row")).to_have_count(4)

    act(page, "/fast", "Drain…")
    expect(dialog).to_contain_text("orders: New messages of queue 0 go to home, no longer to fast.")
    dialog.get_by_role("button", name="Cancel").click()
    assert "fast" in cells_of(server)
    act(page, "/fast", "Drain…")
    dialog.get_by_role("button", name="Drain", exact=True).click()
    expect(dialog).to_have_count(0)
    cells = page.get_by_role("region", name="Cells", exact=True)
    expect(cells).to_contain_text("draining")
    assert set(cells_of(server)) == {"home"}

    act(page, "/fast", "Make normal…")
    expect(dialog).to_contain_text("fast is draining now, and normal then.")
    dialog.get_by_role("button", name="Make normal", exact=True).click()
    expect(cells).not_to_contain_text("draining")
    page.get_by_role("button", name="Spread over all cells…").click()
    dialog.get_by_role("button", name="Spread", exact=True).click()
    expect(dialog).to_have_count(0)
    assert set(cells_of(server)) == {"home", "fast"}


def test_a_pending_move_is_shown_and_withdrawn_after_a_question(server: Server, visits: Visits) -> None:
    server.ok("PUT", "/v1/subjects/parcels", {"queues": 1})
    route = server.ok("GET", "/v1/routes/parcels")
    pending = {**route, "queues": [{**route["queues"][0], "moving_to": "fast"}], "pending_queues": 2}
    step = {"before": pending, "after": route, "dry_run": False}
    sent: list[str] = []

    def withdraw(call: Route) -> None:
        sent.append(call.request.url.partition("pending")[2])
        call.fulfill(json=step)

    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/cells")
    page.route("**/v1/routes/parcels", lambda call: call.fulfill(json=pending))
    page.route("**/v1/routes/parcels/pending*", withdraw)
    page.goto(f"http://127.0.0.1:{server.port}/console/#/cells?subject=parcels")
    expect(page.get_by_role("region", name="Queues of parcels")).to_contain_text("moving to fast")
    page.get_by_role("button", name="Withdraw the move…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Queue 0 does not move to fast.")
    expect(dialog).to_contain_text("The subject does not get 2 queues.")
    dialog.get_by_role("button", name="Withdraw", exact=True).click()
    expect(dialog).to_have_count(0)
    assert sent == ["?queue=0&dry_run=true", "?queue=0"]
    page.get_by_role("button", name="Withdraw the addition…").click()
    dialog.get_by_role("button", name="Withdraw", exact=True).click()
    expect(dialog).to_have_count(0)
    assert sent[2:] == ["?dry_run=true", ""]
