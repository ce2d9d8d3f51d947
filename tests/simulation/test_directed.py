"""Runs pairs of actions of the real library, one held within the other: none may break an invariant."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.cells import moves, withdrawals
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.ownership import DispatchLog
from hourwheel.model.routes import Route
from hourwheel.ordered import parts as ordered_parts
from tests.simulation.directed import EVERY_SCENE, Case, cases, run_case
from tests.simulation.movebugs import MOVED
from tests.simulation.scenes import Scene
from tests.simulation.sides import GOING_ON, WAITING
from tests.simulation.world import Violation

SHARE = 160
"""The tests run one in this many cases, ``make verify`` five times as many;
``python -m tests.simulation.run --directed 1`` runs all."""


@pytest.mark.parametrize("scene", EVERY_SCENE, ids=lambda scene: scene.name)
def test_no_pair_of_actions_breaks_an_invariant(scene: Scene) -> None:
    for case in _of(scene, SHARE):
        violation = run_case(case).violation
        assert violation is None, f"{case.label}: {violation}"


def test_each_scene_holds_a_moment_at_which_its_actions_meet() -> None:
    """A scene whose calls have moved away from the moment that it holds would prove nothing."""
    for scene in EVERY_SCENE:
        late = any(action in GOING_ON for action in scene.second)
        assert any(case.second in GOING_ON or not late for case in cases(1, [scene])), scene.name


REGRESSIONS = {
    "an archive: archive at 10 / archive, then produce, held 0 ms": (
        "whoever came second with a manifest thought that it had committed, and its rows were in no archive"
    ),
    "a closed bucket: cancel another at 3 / sweep, held 3000 ms, together": (
        "a cancel that found its bucket removed meanwhile stayed requested for ever"
    ),
    "somebody slow to sweep a closed bucket, held at 7: cancel at 3 / sweep, held 1500 ms": (
        "a message that was sent a day ago was said to wait, while its bucket was being removed"
    ),
}
"""Cases that have found a bug, perhaps a planted one."""


@pytest.mark.parametrize("label", REGRESSIONS)
def test_a_case_that_found_a_bug_finds_it_no_more(label: str) -> None:
    scenes = [scene for scene in EVERY_SCENE if label.startswith(f"{scene.name}: ")]
    [case] = [case for case in cases(1, scenes) if case.label == label]
    assert run_case(case).violation is None, REGRESSIONS[label]


def test_the_log_of_a_withdrawn_move_that_is_used_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs an expired part, and a move that is given up after it has begun the counter of the part's next turn: no
    seed has found it."""
    label = "an emptied cell: move the queue at 10 / drain, produce, undrain, move the queue and produce, held 0 ms"
    [case] = [case for case in cases(1, [_scene("an emptied cell")]) if case.label == label]
    assert run_case(case).violation is None
    monkeypatch.setattr(Route, "spent", lambda self, target: self)
    violation = run_case(case).violation
    assert isinstance(violation, Violation)
    assert "invariant 10" in str(violation)


def test_of_two_operators_who_move_a_queue_at_once_one_wins_and_the_other_is_told() -> None:
    winners = _winners()
    assert min(winners["first"], winners["second"]) > 0, winners


def test_an_operator_who_is_not_told_that_another_one_was_faster_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_check_unmoved", lambda *_: None)
    with pytest.raises(AssertionError, match="move the queue to c0 at"):
        _winners()


def _winners() -> Counter[str]:
    return Counter(_winner(case) for case in cases(1, [_scene("two operators")]))


def _winner(case: Case) -> str:
    """Checks how two operators fare who move one queue at once. Returns which of them moved it, if both had read the
    route, and they wanted it in different cells; "" otherwise."""
    outcome = run_case(case)
    assert outcome.violation is None, f"{case.label}: {outcome.violation}"
    trace = outcome.world.trace
    held = next(at for at, line in enumerate(trace) if line[1] == "held")
    answers = {line[1]: line[4:] for line in trace if line[1] in ("first", "second") and line[2] == "move"}
    won = {name for name, answer in answers.items() if answer[0] == "answered"}
    refused = {answers[name][1].slug for name in answers.keys() - won}
    if case.first == case.second:
        # Both ask for one move: it is done once, and an operator who reads the route later is told that it is done.
        assert won, case.label
        assert refused <= {"queue-there"}, case.label
        return ""
    if case.ends:
        assert won == {"second"} or refused == {"route-changed"}, case.label
        return ""
    if not any(line[1] == "first" and "subject/" in str(line[3]) for line in trace[:held]):
        assert won == {"first", "second"}, case.label  # one after the other
        return ""
    assert len(won) == 1, case.label
    assert refused == {"route-changed"}, case.label
    return won.pop()


def test_of_a_move_and_its_withdrawal_one_wins_and_the_other_is_told() -> None:
    outcomes = _withdrawals("a move and its withdrawal")
    assert min(outcomes["moved"], outcomes["withdrawn"], outcomes["refused"]) > 0, outcomes
    outcomes = _withdrawals("a pending move")
    assert min(outcomes["withdrawn"], outcomes["refused"]) > 0, outcomes


def test_a_withdrawal_that_is_not_told_that_the_move_was_carried_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(withdrawals, "_check_not_carried_out", lambda *_: None)
    # Else the refusal of a move that has begun hides the later one.
    monkeypatch.setattr(withdrawals, "_begun", lambda *_: {})
    with pytest.raises(AssertionError, match="withdraw the move at"):
        _withdrawals("a pending move")


def _withdrawals(scene: str) -> Counter[str]:
    return Counter(_withdrawal(case) for case in cases(1, [_scene(scene)]))


def _withdrawal(case: Case) -> str:
    """Checks what an operator who moves a queue and one who withdraws the move are told, and what the route is. Returns
    what became of the move and its withdrawal; "" if the move was not pending when it was withdrawn."""
    outcome = run_case(case)
    assert outcome.violation is None, f"{case.label}: {outcome.violation}"
    answers = {line[2]: line[4:] for line in outcome.world.trace if line[2] in ("move", "withdraw")}
    moved, withdrawn = (answers.get(verb, ("", None)) for verb in ("move", "withdraw"))
    if withdrawn[0] == "failed:":
        assert withdrawn[1].slug in ("move-begun", "route-changed"), case.label
        assert moved[0] != "failed:", case.label
        return "refused"
    if not withdrawn[0]:
        return ""
    if withdrawn[1].before == withdrawn[1].after:
        trace = outcome.world.trace
        held = next(at for at, line in enumerate(trace) if line[1] == "held")
        seen = any(line[1] == "first" and "subject/" in str(line[3]) for line in trace[:held])
        carried_out = case.second.name == "move the queue to c0"
        assert not (case.first.name == "withdraw the move" and seen and carried_out), case.label
        return "moved" if moved[0] == "answered" else ""
    assert withdrawn[1].after.queues[0].moving_to is None, case.label
    # The move is answered only if it was requested once more, after the withdrawal.
    if case.first.name != case.second.name and moved[0] == "failed:":
        assert moved[1].slug == "route-changed", case.label
    else:
        assert moved[0] != "answered" or case.scene.name == "a pending move", case.label
    return "withdrawn"


def test_a_move_that_waits_for_a_full_target_behind_the_seal_is_found() -> None:
    full = [case for case in cases(1, [_scene("a move to a cell that fails")]) if case.second.name == "cell c0 is full"]
    [bug] = [bug for bug in MOVED if "waits_for_a_full_one" in bug.name]
    with bug.plant():
        found = [run_case(case).violation for case in full if case.first.name == "move the queue to c0"]
    assert any("invariant 10" in str(violation) for violation in found), found


def test_a_wheel_that_a_full_cell_ends_is_found() -> None:
    due = cases(8, [_scene("due messages for a cell that fails")])
    full = [case for case in due if case.second.name == "cell c0 is full"]
    [bug] = [bug for bug in MOVED if bug.name.endswith("ends_the_wheel")]
    with bug.plant():
        found = [run_case(case).violation for case in full]
    assert any("a cell ended the wheel" in str(violation) for violation in found), found


def test_a_part_that_is_left_before_its_last_row_is_decided_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs a producer that is paused between its reservation and its row while the queue moves. The row is stored
    before the later part is served, or after: each order breaks another clause."""
    every = cases(1, [_scene("a slow producer at the end of a part, held at 2")])
    chosen = [case for case in every if case.first in WAITING and case.held_at == 1]
    assert run_case(chosen[0]).violation is None
    monkeypatch.setattr(ordered_parts, "settled_rows", lambda key_states, log: log.mapping.rows)
    found = [str(run_case(case).violation) for case in chosen]
    for clause in ("of its key is left in", "which comes later"):
        assert any(clause in violation for violation in found), found


def test_a_bucket_that_is_removed_while_its_message_is_cancelled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs a cancel that reads the message before the bucket is removed, and the dispatch log after. Another sweeper
    may remove it, or the slow one."""
    label = "somebody slow to sweep a closed bucket, held at 7: cancel at 3 / sweep, held 1500 ms"
    assert label in REGRESSIONS
    monkeypatch.setattr(ScheduledMessages, "_transfer_of", _search_alone)
    every = cases(1, [_scene("somebody slow to sweep a closed bucket, held at 7")])
    chosen = [case for case in every if case.first.name == "cancel" and case.held_at == 3]
    found = {case.label: case.second.name for case in chosen if isinstance(run_case(case).violation, Violation)}
    assert label in found
    assert set(found.values()) == {"sweep", "the slow one goes on"}


def _search_alone(self: ScheduledMessages, position: SchedulePosition, due_ms: int) -> Any:
    """Looks only at the dispatch log, as if a message that it does not name were still there."""
    return DispatchLog(self.context, position.bucket).search(position.row_no, position.index, due_ms)


@pytest.mark.parametrize("scene", EVERY_SCENE, ids=lambda scene: scene.name)
def test_a_case_decides_everything(scene: Scene) -> None:
    for case in islice(_of(scene, 50), 1):
        assert run_case(case).digest() == run_case(case).digest()


def test_rows_grow_where_directed_schedules_meet_them() -> None:
    """A growth that no schedule reaches would be proven by nothing."""
    scenes = [scene for scene in EVERY_SCENE if "grows" in scene.name]
    assert len(scenes) == 3
    for scene in scenes:
        grown = [run_case(case).world.grown for case in cases(SHARE, [scene]) if not case.transactional]
        assert min(grown, default=0) >= 1, scene.name
        assert max(grown) >= 3, scene.name


def _scene(name: str) -> Scene:
    return next(scene for scene in EVERY_SCENE if scene.name == name)


def _of(scene: Scene, share: int) -> Iterator[Case]:
    """Yields one in ``share`` cases of the scene, and its first case if that is none."""
    chosen = cases(share, [scene])
    yield next(chosen, None) or next(cases(1, [scene]))
    yield from chosen
