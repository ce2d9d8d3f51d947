"""The values that a person types into a form of the console become the right request of the API."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.console.pages import Visits
from tests.integration.process import Server


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Iterator[Page]:
    visits = Visits(browser)
    yield visits.open(f"http://127.0.0.1:{server.port}/console/#/")
    visits.close()


def run(page: Page, module: str, expression: str) -> Any:
    """Returns the value of an expression over the exports of a module, ``m``; the text of an error that it throws."""
    code = f"""async () => {{
        const m = await import("/console/pages/parts/{module}.js");
        try {{ return {expression}; }} catch (error) {{ return `${{error.name}} ${{error.message}}`; }}
    }}"""
    return page.evaluate(code)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), (" 1.5h ", 5400), ("3d", 259200), ("250ms", 0.25), ("1.1d", 95040), ("0", 0)],
)
def test_a_duration_becomes_seconds(page: Page, text: str, seconds: float) -> None:
    assert run(page, "values", f'm.seconds("{text}", {{ label: "Delay" }})') == seconds


@pytest.mark.parametrize("text", ["", "1w", "-1s", "1e3", "0x10", "Infinity", "31d", "1.0001s"])
def test_a_duration_that_cannot_be_sent_is_refused_with_the_name_of_its_field(page: Page, text: str) -> None:
    refusal = run(page, "values", f'm.seconds("{text}", {{ label: "Delay", to: 2592000, fractions: false }})')
    if text == "1.0001s":  # less than a millisecond over a whole second is that second
        assert refusal == 1
    else:
        assert refusal == "FieldError Delay: takes a duration such as 90s, 1.5h or 3d, from 0s to 30d"


def test_headers_and_tags_are_taken_as_they_are_typed(page: Page) -> None:
    headers = run(page, "values", 'Object.entries(m.headers("a: 1:2\\n__proto__: x\\n\\n", { label: "Headers" }))')
    assert headers == [["a", "1:2"], ["__proto__", "x"]]
    assert run(page, "values", 'm.headers("a: 1\\na: 2", { label: "Headers" })') == "FieldError Headers: names a twice"
    assert "a colon" in run(page, "values", 'm.headers("no colon", { label: "Headers" })')
    assert run(page, "values", 'm.list("eu, us,,eu\\nde")') == ["eu", "us", "de"]


def test_a_time_is_read_in_the_zone_that_the_page_shows(page: Page) -> None:
    read = 'm.instant("2026-07-01T12:00", { label: "Time", utc: %s })'
    assert run(page, "values", read % "true") == "2026-07-01T12:00:00.000Z"
    assert run(page, "values", read % "false") == "2026-07-01T10:00:00.000Z"  # the browser of the tests is in Berlin
    assert (
        run(page, "values", 'm.instant("", { label: "Time", utc: true })') == "FieldError Time: takes a date and a time"
    )


def test_only_what_differs_is_a_change(page: Page) -> None:
    before = "{ retry: { factor: 2, first: 5 }, filter: null, paused: false }"
    after = '{ retry: { first: 5, factor: 2 }, filter: { tags_any: ["eu"] } }'
    changes = run(page, "values", f"m.changes({before}, {after})")
    assert changes == [{"name": "filter", "from": None, "to": {"tags_any": ["eu"]}}]


@pytest.mark.parametrize(
    ("key", "queue"), [("customer-42", 21), ("Zürich", 62), ("日本", 12), ("🚚", 60), ("order 7/8", 30)]
)
def test_the_queue_of_a_key_is_that_of_the_server(page: Page, key: str, queue: int) -> None:
    assert run(page, "keys", f'm.queueOf("{key}", 64)') == queue


def test_a_search_ends_at_its_bound_and_says_where_it_goes_on(page: Page) -> None:
    load = "async (offset) => ({ messages: [{ key: String(offset) }], damaged: [], next: (offset ?? 0) + 1, end: 99 })"
    scan = f'await m.scan({{ load: {load}, matches: (message) => message.key === "2", pages: 5 }})'
    found = run(page, "scan", scan)
    assert found == {"found": [{"key": "2"}], "damaged": [], "messages": 5, "next": 5, "end": 99}


def test_a_rate_has_no_value_over_a_gap_in_which_the_counter_fell(page: Page) -> None:
    readings = "[[0, 10], [1000, 30], [3000, 5], [4000, 6]].map(([at_ms, end]) => ({ at_ms, end }))"
    assert run(page, "history", f'm.rates({readings}, "end")') == [[1000, 20], [4000, 1]]


def test_a_history_goes_on_when_a_person_comes_back_and_is_bounded(page: Page) -> None:
    readings = 'Array.from({ length: 700 }, (_, i) => m.record("orders/mail", { at_ms: i, waiting: i }).length)'
    lengths = run(page, "history", readings)
    assert (lengths[0], lengths[599], lengths[699]) == (1, 600, 600)
    back = 'm.record("orders/mail", { at_ms: 700, waiting: 0 })'
    assert [reading["at_ms"] for reading in run(page, "history", back)] == list(range(101, 701))
    others = "Array.from({ length: 50 }, (_, i) => m.record(`others/${i}`, { at_ms: 0 }))"
    assert len(run(page, "history", f"({others}, {back})")) == 1, "the page that was left longest ago is forgotten"
