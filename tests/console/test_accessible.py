"""People who use a keyboard, a screen reader, a phone or a dark screen can use every page."""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.console.axe import violations
from tests.console.pages import Visits
from tests.console.routes import PAGES, address, shown
from tests.integration.process import Server


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_in_the_light_or_the_dark_on_a_desk_or_a_phone(
    shop: Server, visits: Visits, name: str
) -> None:
    page = shown(visits, shop, name, bypass_csp=True)
    found = {}
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found[width, scheme] = violations(page)
        sideways = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert sideways == 0, f"the page scrolls sideways at {width} pixels"
    assert not any(found.values()), found
    check_structure(page, name)


def check_structure(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    if name != "overview":
        first = page.get_by_role("navigation", name="Breadcrumbs").get_by_role("link").first
        expect(first).to_have_attribute("href", "#/")
    for table in page.get_by_role("table").all():
        assert table.locator("caption").count() == 1
        assert table.locator("thead th[scope=col]").count() > 0


def test_axe_finds_what_is_wrong(browser: Browser) -> None:
    page = browser.new_page(bypass_csp=True)
    page.set_content("<title>x</title><main><h1>x</h1><img src='data:,'><input></main>")
    found = " ".join(violations(page))
    assert "image-alt" in found
    assert "label" in found
    page.close()


def test_the_keyboard_reaches_pages_and_help(shop: Server, visits: Visits) -> None:
    page = visits.open(address(shop))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Overview")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    for key, heading in (("c", "Cells"), ("d", "Delayed"), ("p", "Pipeline"), ("o", "Overview")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
        expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("?")  # in a field it is a character
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_times_and_theme_follow_their_switches_and_last(shop: Server, visits: Visits) -> None:
    page = shown(visits, shop, "group")
    times = page.locator("time").first
    expect(times).not_to_contain_text("UTC")
    page.get_by_role("button", name="Times are local").click()
    expect(times).to_contain_text("UTC")
    page.get_by_role("button", name="Theme: Auto").click()
    page.get_by_role("button", name="Theme: Light").click()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    expect(times).to_contain_text("UTC")
    expect(page.get_by_role("button", name="Theme: Dark")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background


def test_an_address_without_a_page_says_so(shop: Server, visits: Visits) -> None:
    page = visits.open(address(shop, "#/nothing"))
    expect(page.get_by_role("heading", level=1)).to_have_text("No such page")
