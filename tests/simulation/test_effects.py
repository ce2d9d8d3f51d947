"""Bugs of delayed messages are found by their effects alone, with the rules about wheels and buckets switched off."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from unittest.mock import patch

import pytest

from tests.simulation import checker
from tests.simulation.audit import StoreAudit
from tests.simulation.buckets import BucketHistory
from tests.simulation.bugs import Bug
from tests.simulation.delaybugs import DELAYED
from tests.simulation.draws import unarchived
from tests.simulation.facts import RowFact
from tests.simulation.history import History
from tests.simulation.schedule import run_plan
from tests.simulation.world import Violation

RUNS = 200

FOUND = {
    "a_wheel_takes_a_slot_before_it_is_over": "ms early",
    "a_wheel_goes_to_sleep_without_a_second_look": "ms late, in a run without faults",
    "a_new_owner_forgets_what_was_handed_over": "comes 2 times, it was sent 1 times",
    "a_wheel_forgets_one_of_the_messages_that_are_due_together": "was accepted, and never came into a queue",
    "a_cancel_marker_is_ignored_when_its_message_is_due": "comes 1 times, 1 of 1 are cancelled",
}
"""A planted bug for each clause of the rule, and what the rule says of it."""

_OF_BUCKETS = ("_check_named", "_check_closed", "check_slept", "tell_cancelled")
_OF_THE_END = ("_check_carried_out", "_check_answers", "_check_delivered")


@contextmanager
def only_effects() -> Iterator[None]:
    """Switches off the rules about the records of buckets, cancels and hand-overs, and about what groups are handed."""
    with ExitStack() as stack:
        for rule in _OF_BUCKETS:
            stack.enter_context(patch.object(BucketHistory, rule, lambda *_: None))
        for rule in _OF_THE_END:
            stack.enter_context(patch.object(checker, rule, lambda *_: None))
        stack.enter_context(patch.object(BucketHistory, "waiting", lambda *_: []))
        stack.enter_context(patch.object(History, "in_time", lambda *_: None))
        stack.enter_context(patch.object(StoreAudit, "_handed_over", _noted))
        yield


def _noted(audit: StoreAudit, log: str, number: int, fact: RowFact) -> None:
    """Notes that a hand-over is stored, without judging it."""
    promise = audit.promises.get(fact.token)
    if promise is not None:
        promise.stored_row = number


def _violations(bug: Bug) -> Iterator[str]:
    with bug.plant(), only_effects():
        for plan in islice(map(unarchived, count()), RUNS):
            violation = run_plan(bug.sharpen(plan)).violation
            if isinstance(violation, Violation):
                yield str(violation)


@pytest.mark.parametrize("name", FOUND)
def test_a_bug_of_each_clause_is_found_by_its_effect(name: str) -> None:
    [bug] = [bug for bug in DELAYED if bug.name == name]
    assert any(FOUND[name] in violation for violation in _violations(bug))
