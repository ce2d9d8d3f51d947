"""Opens pages of the browser that record forbidden acts of a page: a request to another host, a logged or an uncaught
error."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, Route, expect

PATIENCE_MS = 60_000
"""Longer than anything here takes on a machine that is ten times slower: a test that hangs fails."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Faults:
    """The faults of one context. ``expected``: patterns of console errors that a test provokes."""

    expected: tuple[str, ...]
    strangers: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def of_console(self, message: ConsoleMessage) -> None:
        text = f"{message.text} ({message.location.get('url', '')})"
        if message.type == "error" and not any(re.search(pattern, text) for pattern in self.expected):
            self.errors.append(text)

    def of_page(self, error: Error) -> None:
        self.errors.append(f"{error.name}: {error.message}")


class Visits:
    """Opens pages of the browser, each in a context of its own: one starts without storage and cookies."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._opened: list[tuple[BrowserContext, Faults]] = []

    def open(
        self,
        address: str,
        *,
        width: int = 1280,
        scheme: Literal["light", "dark"] = "light",
        bypass_csp: bool = False,
        expected: Sequence[str] = (),
    ) -> Page:
        """Opens the address, and returns the page once it has loaded. ``bypass_csp`` lets the test add a script."""
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            bypass_csp=bypass_csp,
            timezone_id="Europe/Berlin",
            locale="en-GB",
            reduced_motion="reduce",
        )
        context.set_default_timeout(PATIENCE_MS)
        faults = Faults(tuple(expected))
        own = re.match(r"https?://[^/]+/", address)
        assert own is not None, address

        def stranger(route: Route) -> None:
            faults.strangers.append(route.request.url)
            route.abort()

        context.route(lambda url: not url.startswith((own[0], "data:")), stranger)
        context.on("console", faults.of_console)
        context.on("weberror", lambda event: faults.of_page(event.error))
        self._opened.append((context, faults))
        page = context.new_page()
        page.goto(address)
        return page

    def close(self) -> None:
        """Closes all pages. Raises ``AssertionError`` where one asked another host, or had an unexpected error."""
        for context, _ in self._opened:
            context.close()
        for _, faults in self._opened:
            assert not faults.strangers, f"asked other hosts: {faults.strangers}"
            assert not faults.errors, f"had errors: {faults.errors}"


def try_now(page: Page) -> None:
    """Presses the button of the banner, unless the page has tried by itself meanwhile, and the banner is gone."""
    page.get_by_role("button", name="Try now").evaluate_all("buttons => buttons.forEach((button) => button.click())")
