"""Finds barriers for people who use a page: runs axe-core, from npm, in the page."""

from playwright.sync_api import Page

from tests.console.chromium import ROOT

SCRIPT = ROOT / "node_modules/axe-core/axe.min.js"


def violations(page: Page) -> list[str]:
    """Returns the broken rules of axe, each with its element. The page needs ``bypass_csp``."""
    page.add_script_tag(path=SCRIPT)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{broken['id']} ({broken['help']}): {node['html']} {node['failureSummary']}"
        for broken in found["violations"]
        for node in broken["nodes"]
    ]
