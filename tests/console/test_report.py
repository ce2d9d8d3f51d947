"""The report of the pipeline in a browser: one file, whose charts the script of the console draws."""

import re

from playwright.sync_api import expect

from hourwheel_pipeline.reporting.contents import Contents, GroupHours, HotKey, Hour, SubjectHours
from hourwheel_pipeline.reporting.page import page as report_page
from tests.console.pages import Visits
from tests.integration.process import Server
from tests.support import NOON_MS

EVIL = "<script>throw new Error('markup')</script>"


def two_minutes() -> Contents:
    """Returns the contents of a demo of two minutes: steps of seconds."""
    seconds = [NOON_MS + second * 1_000 for second in range(120)]
    delivered = [Hour(hour_ms=at, delivered=7, lag=2, total_p50_ms=5, total_p99_ms=70) for at in seconds]
    subject = SubjectHours(
        subject="orders",
        hours=[Hour(hour_ms=NOON_MS, accepted=960, due=3, hot_keys=[HotKey(EVIL, 3)])],
        steps=[Hour(hour_ms=at, accepted=8) for at in seconds],
        groups=[GroupHours(group="billing", hours=[], steps=delivered)],
    )
    made_ms = NOON_MS + 120_000
    return Contents(
        made_ms=made_ms, since_ms=NOON_MS, reconciled=None, step_ms=1_000, subjects_total=1, subjects=[subject]
    )


def test_the_report_draws_its_charts_under_its_own_policy(visits: Visits, server: Server) -> None:
    page = visits.open(f"http://127.0.0.1:{server.port}/v1/health")
    page.set_content(report_page(two_minutes()))
    expect(page.locator("figure.chart svg")).to_have_count(4)
    chart = page.get_by_role("slider", name=re.compile("^Messages per second"))
    expect(chart.locator("path")).to_have_count(2)
    # Two minutes are drawn by the second: the axis has labels with seconds.
    expect(chart.locator("text", has_text="12:00:30")).to_have_count(1)
    chart.press("Home")
    expect(chart).to_have_attribute("aria-valuetext", "Thu, 20 Nov 2025, 12:00:00: accepted 8, billing delivered 7")
    page.get_by_text("Numbers: Messages per second").click()
    expect(page.get_by_role("cell", name="2025-11-20 12:00:05")).to_be_visible()
    expect(page.get_by_text(EVIL)).to_have_count(1)
