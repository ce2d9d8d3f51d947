"""The function ``wheel`` while the wheels that its timers name cannot be started."""

import json
from typing import Any

import pytest

from hourwheel.api.background.wheel import turning
from hourwheel.errors import Throttled
from tests.support import NOON_MS, Bench

BUCKET = f"{NOON_MS}-60/000"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Returns a cell of which neither a wheel nor a timer can be started."""
    bench = Bench.precisely()

    def throttled(*_: Any) -> None:
        raise Throttled("too many executions")

    monkeypatch.setattr(bench.timers, "at", throttled)
    assert bench.precise is not None
    monkeypatch.setattr(bench.precise, "after", throttled)
    return bench


def called(bench: Bench, event: Any) -> Any:
    return turning(lambda: None)(bench.deployment, event, None)


def test_the_queue_delivers_a_start_again_that_could_not_be_carried_out(bench: Bench) -> None:
    body = json.dumps({"bucket": BUCKET, "wakes_ms": bench.clock.ms})
    answer = called(bench, {"Records": [{"messageId": "m0", "body": body}]})
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}


def test_lambda_repeats_an_early_start_that_could_not_be_ordered_again(bench: Bench) -> None:
    with pytest.raises(Throttled):
        called(bench, {"bucket": BUCKET, "wakes_ms": bench.clock.ms + 600_000})
