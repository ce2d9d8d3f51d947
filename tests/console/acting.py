"""Acts on a page, for the tests of several pages."""

from playwright.sync_api import Locator, Page, Route, expect


def opened(page: Page, title: str) -> Locator:
    """Opens a closed section of the page, and returns it."""
    section = page.locator("details").filter(has=page.get_by_role("heading", name=title, exact=True))
    section.locator("summary").first.click()
    return section


def answer(page: Page, button: str) -> None:
    """Says yes to the question that is open, pressing twice as impatient people do."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=button, exact=True).evaluate("(button) => { button.click(); button.click(); }")
    expect(dialog).to_have_count(0)


def read_only(page: Page) -> None:
    """Has the console told that it is read-only, as ``hourwheel console --read-only`` tells it."""

    def told(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), "read_only": True})

    page.route("**/settings.json", told)
    page.reload()
