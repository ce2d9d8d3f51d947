"""Every page, block, step and number of tries of the protocol is small in some runs of the simulation, or says why
not."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice

import pytest

from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Table
from tests.simulation.bugs import Bug
from tests.simulation.draws import draw, unarchived
from tests.simulation.pagebugs import PAGED
from tests.simulation.pages import SMALL, constants, has_small_pages, small_pages
from tests.simulation.plan import Plan
from tests.simulation.scenes import PLAN
from tests.simulation.schedule import run_plan, scaled, simulate
from tests.simulation.world import Violation
from tests.support import Bench

WHOLE = {
    "OPEN": "a state, and no number",
    "BATCH_MESSAGES": "the largest batch of a producer: a rule of the API, and not a page",
    "NAMED": "a refusal or an answer names this many keys: the rest are counted, and nothing else follows",
    "GET_MANY": "elsewhere a check of callers, whose reads are divided by the value of their own module",
    "delay.wheel._FENCES": "an owner that keeps appending is alive: a wheel of the simulation that gives up is late",
    "delay.lists.delayed_list._SHOWN": "where a number in an answer ends: the contract suite counts to it",
    "delay.lists.delayed_states._DISPATCH_ROWS": "a list that leaves states out: tests/unit/delay lowers it",
    "delay.lists.due_minutes._ROWS": "beyond it a chart is told as incomplete: tests/unit/operations lowers it",
    "delay.lists.pending_counts._MOST_ROWS": "beyond it a count is told as incomplete: tests/unit/delay lowers it",
    "pull_log.claiming.selection.MOST_BODIES": "claim_range reads it, where plans with summaries of tags lower it",
    "logs.seen_keys._MOST": "bounds memory: a key that is forgotten costs one look-up",
    "groups.consumers._MOST_SEEN": "a display, whose memory is bounded",
    "groups.consumers._RECENT_ROWS": "a display of recent consumers",
    "dead_letters.dead._MOST_FILTERED": "no run filters dead letters: tests/unit lowers it",
    "dozing.rests._MOST_PASSED": "bounds memory: tests/unit lowers it",
    "cells.operations._LAST_ROWS": "a look of operators: tests/unit/cells has it",
    "groups.numbers.MOST_GROUPS": "beyond it an overview is told as incomplete",
    "groups.state._PAGES": "beyond it a list is told as incomplete: tests/unit/groups lowers it",
    "groups.state._RETRY_ROWS": "beyond it a list is told as incomplete: tests/unit/groups lowers it",
    "groups.peek._ROWS": "no run peeks: tests/unit lowers it",
    "groups.peek._PAGE": "no run peeks: tests/unit lowers it",
    "ordered.snapshots._RELOADS": "an error after many replaced snapshots: a run without faults may not fail",
    "pulling.source_logs._MOST_GROUPS": "bounds memory: what is forgotten is read anew, as after a crash",
    "dozing.dozing.MOST_DOZING": "a rule: further groups of a subject do not doze",
    "dozing.dozing._MOST_REMEMBERED": "bounds memory: what is forgotten is read anew, as after a crash",
    "dozing.dozing._TRIES": "dozing is simulated on its own, by tests/simulation/dozing.py",
    "cells.lost_cells.MOST_OFFSETS": "no run gives a cell up: tests/unit/operations has the walk",
    "cells.lost_cells._TRIES": "no run gives a cell up: tests/unit/operations has the walk",
    "registry.record_changes._TRIES": "an error after lost races: actors without faults do not expect it",
    "cells.withdrawals._TRIES": "no run withdraws a change: tests/unit/operations has the races",
    "retention.extend_ttl._MOST": "stores with TTL are not simulated with an archive that is days behind",
    "sweep.decisions.LINES": "lines of a log",
    "sweep.report._NAMED": "names in a line of a log",
}
"""Constants that stay as they are, by their name in all modules or in one, each with the reason."""


def is_whole(constant: str) -> bool:
    return constant in WHOLE or constant.rpartition(".")[2].strip("_") in WHOLE


def test_no_page_escapes_the_simulation() -> None:
    usual = constants()
    assert PLAN.delays is not None
    plan = replace(PLAN, ordered=True, max_parked=2, tag_room=0, delays=replace(PLAN.delays, step_picks=1))
    with scaled(plan), small_pages():
        lowered = {constant for constant, value in constants().items() if value != usual[constant]}
    listed = {f"{module}.{name}" for module, names in SMALL.items() for name in names}
    assert listed <= usual.keys(), "these are no constants of this kind any more"
    assert listed <= lowered, "these are small already"
    assert {constant for constant in usual.keys() - lowered if not is_whole(constant)} == set()
    named = {constant.rpartition(".")[2].strip("_") for constant in usual}
    assert {each for each in WHOLE if each not in usual and each not in named} == set()


def test_lowered_pages_are_those_that_the_code_reads() -> None:
    """A page that is a default, or was imported by value, would stay large."""
    bench = Bench()
    for number in range(9):
        bench.deployment.produce("orders", [NewMessage(body=str(number))])
    limits: list[int] = []
    real = type(bench.store).scan

    def scan(self: object, table: Table, partition: str, **how: int) -> object:
        limits.append(how["limit"])
        return real(self, table, partition, **how)  # type: ignore[arg-type, call-overload]  # passed on

    with small_pages(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(bench.store), "scan", scan)
        assert len(bench.take(100)) == 9
        assert sum(1 for _ in bench.deployment.context.log("orders~1/0").rows(0)) == 9
    assert max(limits) <= 3


def test_a_third_of_the_seeds_has_small_pages() -> None:
    seeds = [seed for seed in range(300) if has_small_pages(seed)]
    assert 75 <= len(seeds) <= 135
    assert {draw(seed).transactional for seed in seeds} == {True, False}


@pytest.mark.parametrize("seed", [*islice((seed for seed in range(400, 1_000) if has_small_pages(seed)), 15)])
def test_runs_with_small_pages_break_no_invariant(seed: int) -> None:
    assert simulate(seed).violation is None


@pytest.mark.parametrize("bug", PAGED, ids=lambda bug: bug.name)
def test_what_shows_only_beyond_a_page_is_found_when(bug: Bug) -> None:
    plans = (plan for plan in _unlike_each_other(bug) if has_small_pages(plan.seed))
    with bug.plant():
        found = next(filter(None, (run_plan(plan).violation for plan in islice(plans, 150))), None)
    assert isinstance(found, Violation), f"{bug.name}: {found!r}"


def _unlike_each_other(bug: Bug) -> Iterator[Plan]:
    plans = (plan for plan in map(unarchived, count()) if plan.delays is None and not plan.couriers)
    return map(bug.sharpen, plans)
