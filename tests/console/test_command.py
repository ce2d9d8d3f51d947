"""The pages through ``hourwheel console``: the command passes their calls on, or gives the reason why it cannot."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.console import scene
from tests.console.gateway import EXPIRED, GOOD, STRANGER, UNKNOWN, Gateway, gateway, write_key
from tests.console.pages import Visits, try_now
from tests.console.routes import PAGES
from tests.integration.process import Server
from tests.integration.test_console_command import Console, console

UNREACHABLE = r"502 \(Bad Gateway\)"


@pytest.fixture(scope="module")
def command(shop: Server) -> Iterator[Console]:
    """Yields the command in front of the shop."""
    with console(f"http://127.0.0.1:{shop.port}") as started:
        yield started


Start = Callable[..., Console]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts commands, which end after the pages: ask for it before ``visits``."""
    with ExitStack() as started:
        yield lambda url, *options: started.enter_context(console(url, *options))


def through(visits: Visits, command: Console, place: str = "#/", *expected: str) -> Page:
    """Opens the printed address, and goes to a page."""
    address = f"http://127.0.0.1:{command.port}/console/"
    page = visits.open(f"{address}#secret={command.secret}", expected=expected)
    expect(page.locator("#nav")).to_contain_text("Overview")
    page.goto(f"{address}{place}")
    return page


@pytest.mark.parametrize("name", PAGES)
def test_each_page_loads(command: Console, visits: Visits, name: str) -> None:
    place = PAGES[name]
    page = through(visits, command, place.address)
    expect(page.get_by_role("heading", level=1)).to_contain_text(place.heading)
    expect(page.get_by_role("main")).to_contain_text(place.text)
    assert command.secret not in page.url


def test_a_message_is_sent_once_though_its_button_is_pressed_twice(
    shop: Server, command: Console, visits: Visits
) -> None:
    before = shop.ok("GET", "/v1/subjects/shipments/groups/tracking/lag")["waiting"]
    page = through(visits, command, "#/subjects/shipments")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    page.locator("details", has=page.get_by_role("heading", name="Send a test message")).locator("summary").click()
    page.get_by_label("Body", exact=True).fill("through the command")
    page.get_by_role("button", name="Send…").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Send", exact=True)
    button.evaluate("button => { button.click(); button.click(); }")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert len(sent) == 1
    assert shop.ok("GET", "/v1/subjects/shipments/groups/tracking/lag")["waiting"] == before + 1


def test_without_its_secret_a_page_says_what_to_open(command: Console, visits: Visits) -> None:
    page = visits.open(f"http://127.0.0.1:{command.port}/console/", expected=["403"])
    expect(page.locator("#banner")).to_contain_text("open the address that the command has printed")


def test_a_read_only_command_offers_no_acts(shop: Server, start: Start, visits: Visits) -> None:
    command = start(f"http://127.0.0.1:{shop.port}", "--read-only")
    page = through(visits, command, "#/subjects/orders/groups/billing")
    expect(page.get_by_role("main")).to_contain_text("billing-2")
    expect(page.get_by_text("read-only", exact=True)).to_be_visible()
    for act in ("Pause…", "Delete…", "Send…", "End the leases…"):
        expect(page.get_by_role("button", name=act)).to_have_count(0)


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers on one data directory, which are stopped at the end."""
    with ExitStack() as started:

        def begun(port: int = 0) -> Server:
            server = Server(tmp_path / "data", port=port)
            started.callback(server.process.close)
            started.callback(server.kill)
            return server

        yield begun


def test_a_server_that_goes_and_comes_back_is_told_and_read_again(
    begin: Callable[..., Server], start: Start, visits: Visits
) -> None:
    server = begin()
    scene.send(server, "orders", scene.orders(0, 3))
    page = through(visits, start(f"http://127.0.0.1:{server.port}"), "#/", UNREACHABLE)
    expect(page.get_by_role("main")).to_contain_text("orders")
    server.kill()
    page.keyboard.press("r")
    banner = page.locator("#banner")
    expect(banner).to_contain_text("The server cannot be reached. The page goes on as soon as it answers.")
    expect(page.get_by_role("main")).to_contain_text("orders")
    again = begin(server.port)
    scene.send(again, "parcels", [{"body": "later"}])
    try_now(page)
    expect(banner).to_be_empty()
    expect(page.get_by_role("main")).to_contain_text("parcels")


@pytest.fixture
def signed(shop: Server) -> Iterator[Gateway]:
    with gateway(shop) as started:
        yield started


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the file of credentials that the command reads, and switches off all other sources."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path / "credentials"


SIGNED = ("--sign", "aws", "--region", "eu-west-1")
NOT_TAKEN = "AWS takes no calls with the credentials of the command. The page goes on as soon as they are valid."


@pytest.mark.parametrize(
    ("key", "advice"),
    [(None, "log in, or give this machine a role"), (EXPIRED, "log in again"), (UNKNOWN, "log in again")],
)
def test_credentials_that_are_not_taken_are_told_and_new_ones_are_used_without_a_restart(
    signed: Gateway, keys: Path, start: Start, visits: Visits, key: str | None, advice: str
) -> None:
    if key is not None:
        write_key(keys, key)
    command = start(signed.url, *SIGNED)
    page = through(visits, command, "#/subjects/orders/groups/billing", "401", "403")
    banner = page.locator("#banner")
    expect(banner).to_contain_text(NOT_TAKEN)
    expect(banner).to_contain_text(advice)
    assert signed.calls == []
    write_key(keys, GOOD)
    try_now(page)
    expect(banner).to_be_empty()
    expect(page.get_by_role("main")).to_contain_text("billing-2")


def test_credentials_that_expire_under_an_open_page_leave_its_numbers_and_act_once_when_renewed(
    shop: Server, signed: Gateway, keys: Path, start: Start, visits: Visits
) -> None:
    shop.ok("POST", "/v1/subjects/orders/groups/mail/resume")
    write_key(keys, GOOD)
    command = start(signed.url, *SIGNED)
    page = through(visits, command, "#/subjects/orders/groups/mail", "401", "403")
    pause = page.get_by_role("button", name="Pause…")
    expect(pause).to_be_visible()
    signed.expired.add(GOOD)
    page.keyboard.press("r")
    expect(page.locator("#banner")).to_contain_text(NOT_TAKEN)
    expect(page.get_by_role("main")).to_contain_text("This group could not be read.")  # it moves the elements below it
    pause.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Nothing was changed.")
    expect(dialog.get_by_role("alert")).to_contain_text("log in again")
    assert not shop.ok("GET", "/v1/subjects/orders/groups/mail")["paused"]
    write_key(keys, "AKIARENEWED")
    dialog.get_by_role("button", name="Pause", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Resume…")).to_be_visible()
    expect(page.locator("#banner")).to_be_empty()
    assert [call for call in signed.calls if call[0] == "POST"] == [("POST", "/v1/subjects/orders/groups/mail/pause")]
    shop.ok("POST", "/v1/subjects/orders/groups/mail/resume")


def test_a_permission_that_is_missing_is_named(signed: Gateway, keys: Path, start: Start, visits: Visits) -> None:
    write_key(keys, STRANGER)
    command = start(signed.url, *SIGNED)
    page = through(visits, command, "#/", "403")
    told = page.get_by_role("main")
    expect(told).to_contain_text("AWS refused the signed request")
    expect(told).to_contain_text("aws sts get-caller-identity")
