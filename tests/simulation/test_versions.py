"""Two versions of the library work on one store at once, and break no invariant."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any
from unittest.mock import patch

import pytest

from hourwheel.pull_log.pull_log import PullLog
from tests.simulation.growthbugs import GROWN
from tests.simulation.plan import Plan
from tests.simulation.versions import before, mixed, run_mixed
from tests.simulation.world import Violation

RUNS = 40
MANY_RUNS = 2_000
MOST_RUNS = 100


def assert_all_sound(seeds: range) -> None:
    opened = 0
    for seed in seeds:
        outcome, names = run_mixed(mixed(seed))
        again = f"python -m tests.simulation.versions {seed}:{seed + 1}"
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}; {again}"
        opened += len(names)
    assert opened > len(seeds)  # several processes of the version before in most runs


def test_no_schedule_of_two_versions_breaks_an_invariant() -> None:
    assert_all_sound(range(RUNS))


@pytest.mark.volume
def test_no_schedule_of_many_of_two_versions_breaks_an_invariant() -> None:
    assert_all_sound(range(RUNS, RUNS + MANY_RUNS))


def test_the_version_before_is_code_of_its_own() -> None:
    earlier = before("pull_log.pull_log").PullLog
    assert earlier is not PullLog
    assert earlier.__module__ == "hourwheel_before.pull_log.pull_log"
    assert before("pull_log.records").PullRow.__module__ == "hourwheel_before.pull_log.records"


def growing() -> Iterator[Plan]:
    (bug,) = [bug for bug in GROWN if bug.name == "a_claim_does_not_end_the_growth_of_the_row_before_it"]
    return (bug.sharpen(mixed(seed)) for seed in count() if mixed(seed).delays is None and not mixed(seed).couriers)


@contextmanager
def unaware_of_growth() -> Iterator[None]:
    """Has the version before claim behind a row whose end is not final, as it did before rows grew."""
    earlier = before("pull_log.pull_log").PullLog

    def end_growth(self: Any, row_no: int, seen: Any) -> Any:
        final = before("logs.cas").Versioned(seen.value.final(), seen.token)
        return before("logs.cas").CasResult(True, final)

    with patch.object(earlier, "end_growth", end_growth):
        yield


def test_a_version_that_does_not_end_the_growth_of_rows_hands_out_messages_twice() -> None:
    with unaware_of_growth():
        outcomes = (run_mixed(plan)[0].violation for plan in islice(growing(), MOST_RUNS))
        found = next((violation for violation in outcomes if violation is not None), None)
    assert isinstance(found, Violation), f"{found!r}"


def test_growing_rows_of_two_versions_are_sound() -> None:
    assert [violation for plan in islice(growing(), 10) if (violation := run_mixed(plan)[0].violation)] == []
