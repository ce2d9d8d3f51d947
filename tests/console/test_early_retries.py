"""The page of a group retries what backs off at once, and purges what waits."""

from playwright.sync_api import expect

from tests.console import scene
from tests.console.acting import answer
from tests.console.pages import Visits
from tests.integration.process import Server, pull

GROUP = "/v1/subjects/early/groups/billing"


def test_messages_that_back_off_are_retried_by_error_then_all(server: Server, visits: Visits) -> None:
    server.ok("PUT", GROUP, {"retry": {"delays_seconds": [3_600]}})
    scene.send(server, "early", [{"id": f"m-{number}", "body": "x"} for number in range(4)])
    (pulled,) = pull(server, subject="early", group="billing")
    retry = [{"index": index, "detail": "refused" if index else "time-out"} for index in range(4)]
    server.ok("POST", f"{GROUP}/ack", {"settle": [{"receipt": pulled["receipt"], "retry": retry}]})
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/subjects/early/groups/billing")
    panel = page.get_by_role("region", name="Retries by attempt")
    for error, says in (("time-out", "1 message is retried now."), ("", "3 messages are retried now.")):
        panel.get_by_role("button", name="Retry now…").click()
        page.get_by_label("Error, as the consumer told it").fill(error)
        answer(page, "Retry now")
        expect(page.locator("#toasts")).to_contain_text(says)
    assert server.ok("GET", f"{GROUP}/lag")["backing_off"] == 0


def test_a_group_is_purged_after_it_said_how_many_messages_that_is(server: Server, visits: Visits) -> None:
    server.ok("PUT", "/v1/subjects/full/groups/billing", {})
    scene.send(server, "full", [{"body": "x"} for _ in range(7)])
    page = visits.open(f"http://127.0.0.1:{server.port}/console/#/subjects/full/groups/billing")
    page.get_by_role("button", name="Purge…").click()
    expect(page.get_by_role("dialog")).to_contain_text("The group passes over 7 messages.")
    page.get_by_role("dialog").get_by_role("button", name="Keep them").click()
    assert server.ok("GET", "/v1/subjects/full/groups/billing/lag")["waiting"] == 7
    page.get_by_role("button", name="Purge…").click()
    answer(page, "Purge")
    expect(page.get_by_role("region", name="Now")).to_be_visible()
    assert server.ok("GET", "/v1/subjects/full/groups/billing/lag")["waiting"] == 0
