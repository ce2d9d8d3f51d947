"""The examples in docs/api/ run as they are written, and the answers are those of the page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hourwheel.api.router import Match, Router
from hourwheel.api.routes import ROUTES
from tests.docs.api_pages import examples
from tests.docs.pages import API_PAGES
from tests.integration.conftest import Start

WITH_EXAMPLES = [page for page in API_PAGES if examples(page)]

OPEN = "…"
"""Stands in a request for the last value that an answer had under this name, and in an answer for any text."""


def fill(asked: Any, known: dict[str, str], name: str = "") -> Any:
    """Returns a part of a request with the values that earlier answers gave."""
    if isinstance(asked, dict):
        return {key: fill(value, known, key) for key, value in asked.items()}
    if isinstance(asked, list):
        return [fill(value, known, name) for value in asked]
    return known[name] if asked == OPEN else asked


def learn(answer: Any, known: dict[str, str]) -> None:
    """Remembers each text of an answer by its name."""
    for name, value in answer.items() if isinstance(answer, dict) else ():
        if isinstance(value, str):
            known[name] = value
    for value in answer.values() if isinstance(answer, dict) else answer if isinstance(answer, list) else ():
        learn(value, known)


def differences(shown: Any, got: Any, at: str = "") -> list[str]:
    """Returns where an answer differs from the page."""
    if shown == OPEN:
        return []
    if isinstance(shown, dict) and isinstance(got, dict):
        apart = [f"{at}.{name}" for name in sorted(shown.keys() ^ got.keys())]
        return apart + [
            each for name in shown.keys() & got.keys() for each in differences(shown[name], got[name], f"{at}.{name}")
        ]
    if isinstance(shown, list) and isinstance(got, list) and len(shown) == len(got):
        return [
            each
            for n, (one, other) in enumerate(zip(shown, got, strict=True))
            for each in differences(one, other, f"{at}[{n}]")
        ]
    if isinstance(shown, str) and isinstance(got, str) and OPEN in shown:
        return [] if re.fullmatch(".*".join(map(re.escape, shown.split(OPEN))), got) else [at]
    return [] if shown == got else [f"{at}: {json.dumps(got)}"]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_the_examples_of_a_page_are_answered_as_it_shows(page: Path, start: Start, tmp_path: Path) -> None:
    server = start(cells={"fast": tmp_path / "fast"}, retry_seconds=3600)
    known: dict[str, str] = {}
    apart = []
    for example in examples(page):
        target = re.sub(r"\{(\w+)\}", lambda named: known[named[1]], example.target)
        answer = server.ok(example.method, target, fill(example.body, known))
        learn(answer, known)
        if example.answer is not None:
            apart += differences(example.answer, answer, f"{example.method} {target} ")
    assert apart == []


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=lambda page: page.stem)
def test_each_example_is_a_call_of_the_api(page: Path) -> None:
    router = Router(ROUTES)
    asked = [(each.method, each.target.partition("?")[0]) for each in examples(page)]
    assert [call for call in asked if not isinstance(router.find(*call), Match)] == []


def test_an_answer_that_differs_is_seen() -> None:
    shown = {"id": "order-7", "at": "…", "places": [{"queue": 0}]}
    assert differences(shown, {"id": "order-7", "at": "now", "places": [{"queue": 0}]}) == []
    got = {"id": "order-8", "at": "now", "places": [{"queue": 1}], "more": True}
    assert sorted(differences(shown, got)) == ['.id: "order-8"', ".more", ".places[0].queue: 1"]
