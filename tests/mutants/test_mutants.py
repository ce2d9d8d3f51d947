"""A trial names the same mutants each time, plants them in loaded code alone, and tells which survive."""

import ast
import sys
import time
from collections import Counter

import pytest

from hourwheel.logs.log import GRACE_MS, Log
from hourwheel.logs.rows import Row
from tests.mutants import changes
from tests.mutants.harmless import reasons
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.planting import plant
from tests.mutants.rooms import ROOMS
from tests.mutants.trials import NOT_PLANTED, SURVIVED, TOO_LONG, UNCHANGED, sampled, trials
from tests.support import Bench

KINDS = {
    "bound moved",
    "call left out",
    "comparison weakened",
    "condition dropped",
    "condition ignored",
    "end left out",
    "field kept",
    "loop ended early",
    "old value kept",
    "one side left out",
    "order swapped",
    "read may be stale",
    "sum begun anew",
}
LOG = mutants("logs/log.py")


def named(text: str) -> Mutant:
    [mutant] = [each for each in LOG if text in each.name]
    return mutant


def overdue_at(age_ms: int) -> bool:
    """Returns whether a reader fills the row before one of this age."""
    bench = Bench()
    log = bench.deployment.context.log("x")
    return log._overdue(Row(first_seq=0, count=1, at_ms=bench.clock.now_ms() - age_ms, expires_ms=0))


def test_every_kind_of_change_occurs_in_the_protocol() -> None:
    found = {mutant.kind for room in ROOMS.values() for path in room.paths() for mutant in mutants(path)}
    assert found == KINDS


def test_the_name_of_a_mutant_is_its_own_and_says_no_line() -> None:
    names = Counter(mutant.name for path in ROOMS["pull_log"].paths() for mutant in mutants(path))
    assert max(names.values()) == 1
    assert "logs/log.py Log._overdue: bound moved: " in named("Log._overdue: bound moved").name


def test_a_change_leaves_out_one_write_or_swaps_two() -> None:
    body = ast.parse("first()\nsecond(x)\nx = third()\n").body
    found = {(kind, ast.unparse(ast.Module(value, []))) for kind, _, value in changes.blocks(body, set(), loop=False)}
    assert ("call left out", "second(x)\nx = third()") in found
    assert ("order swapped", "second(x)\nfirst()\nx = third()") in found
    assert not any("x = third()\nsecond(x)" in text for _, text in found), "the second needs what the third assigns"


def test_a_conditional_write_loses_its_condition() -> None:
    [swap] = changes.expressions(ast.parse("record.swap(current, value, token=t)", mode="eval").body)
    assert (swap[0], ast.unparse(swap[1])) == ("condition dropped", "_unconditional_swap(record, value, token=t)")


def finder() -> str:
    """Tells of a bound that moved by one."""
    return "" if overdue_at(GRACE_MS) else "a second is not long enough any more"


def test_a_trial_tells_how_each_mutant_fares_and_leaves_this_process_alone() -> None:
    moved, kept = named("Log._overdue: bound moved"), named("Log.trim: condition ignored: +pass -if mark")
    unknown = Mutant(moved.module, moved.function, moved.line, "comparison weakened", "", -2, 1)
    chosen = [UNCHANGED, moved, kept]
    found = {each.mutant: each.finder for each in trials(chosen, finder, processes=2, longest_seconds=60)}
    assert found == {UNCHANGED: SURVIVED, moved: "a second is not long enough any more", kept: SURVIVED}
    assert overdue_at(GRACE_MS)
    [trial] = trials([unknown], finder, processes=1, longest_seconds=60)
    assert trial.finder.startswith("StopIteration"), "an error while a mutant is planted is told"


def test_checks_that_do_not_end_are_ended() -> None:
    def wait() -> str:
        while True:
            pass

    [trial] = trials([UNCHANGED], wait, processes=1, longest_seconds=0.2)
    assert trial.finder == TOO_LONG


def test_no_mutant_is_begun_after_the_time_of_a_trial() -> None:
    assert [*trials([UNCHANGED], finder, processes=1, longest_seconds=60, until=time.monotonic())] == []


def test_a_function_whose_module_is_not_loaded_is_not_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hourwheel.logs.log")
    assert not plant(named("Log._overdue: bound moved"))
    [trial] = trials([named("Log._overdue: bound moved")], finder, processes=1, longest_seconds=60)
    assert trial.finder == NOT_PLANTED


def test_a_sample_is_drawn_by_the_seed_and_takes_the_kinds_in_turn() -> None:
    first = sampled(LOG, 26, seed=7)
    assert first == sampled(LOG, 26, seed=7) != sampled(LOG, 26, seed=8)
    kinds = Counter(mutant.kind for mutant in first)
    assert len(kinds) == len({mutant.kind for mutant in LOG})
    assert max(kinds.values()) - min(kinds.values()) <= 3


def test_each_reason_is_about_a_mutant_that_there_is() -> None:
    names = {mutant.name for room in ROOMS.values() for path in room.paths() for mutant in mutants(path)}
    assert reasons().keys() <= names, "the code of these has changed: judge them anew, or take them out"
    assert all(len(reason) > 20 for reason in reasons().values())


def test_a_planted_mutant_changes_what_the_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Log._overdue
    monkeypatch.setattr(function, "__code__", function.__code__)  # puts the right code back at the end
    assert plant(named("Log._overdue: bound moved"))
    assert not overdue_at(GRACE_MS)
