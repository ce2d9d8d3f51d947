"""The bars of charts: those side by side are narrow, and none is drawn outside of the axes."""

from typing import Any

from playwright.sync_api import Page

from tests.console.pages import Visits
from tests.console.routes import address
from tests.integration.process import Server

_DRAW = """async (options) => {
  const { barChart } = await import("/console/charts.js");
  const box = document.createElement("section");
  box.id = "drawn";
  document.body.append(box);
  box.append(barChart({ title: "Bars", name: "messages", ...options }));
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""


def drawn(visits: Visits, server: Server, **options: Any) -> Page:
    page = visits.open(address(server, "#/cells"))
    page.evaluate(_DRAW, options)
    return page


def test_a_bar_alone_is_no_block(visits: Visits, server: Server) -> None:
    box = drawn(visits, server, bars=[{"label": "2", "value": 4}]).locator("#drawn .bars rect").bounding_box()
    assert box is not None
    assert box["width"] <= 72


def test_a_bar_that_begins_before_the_span_does_not_cover_the_axis(visits: Visits, server: Server) -> None:
    day_ms = 86_400_000
    bars = [{"at": number * day_ms, "end": (number + 1) * day_ms, "value": 3} for number in range(4)]
    page = drawn(visits, server, bars=bars, **{"from": day_ms // 2, "to": 4 * day_ms, "stepMs": day_ms})
    boxes = [bar.bounding_box() for bar in page.locator("#drawn .bars rect").all()]
    lines = page.locator("#drawn svg line").first.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert lines is not None
    assert boxes[0]["x"] >= lines["x"]
    assert boxes[0]["width"] < boxes[1]["width"] * 0.6
