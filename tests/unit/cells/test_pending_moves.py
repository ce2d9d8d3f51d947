"""A move that waits for a cell is pending: it is shown, holds up no other queue, can be withdrawn, and is carried out
once the cell answers."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.cells import move_steps, moves
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Conflict, NotFound, Throttled, Unavailable
from hourwheel.model.log_names import HOME
from hourwheel.model.messages import NewMessage
from hourwheel.model.route_records import SubjectRoute
from hourwheel.model.routes import RouteChange
from hourwheel.registry.records import subject_record
from tests.support import AT_ONCE, Bench
from tests.unit.cells.scenes import with_a_queue_in_each_cell


@pytest.fixture
def bench() -> Bench:
    """Returns a bench with a subject that has a queue in each of the cells home, ``fast`` and ``old``."""
    return with_a_queue_in_each_cell(Settings(retry=AT_ONCE, registry_seconds=60), MemoryStore())


BOTH = pytest.mark.parametrize("dry_run", [True, False])
CALLS = ("transact", "add", "begin", "seal", "put", "counter", "counters", "get", "get_many", "get_keys", "scan")


@pytest.fixture
def break_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Returns a function that lets every call of a cell fail from then on."""

    def fail(*_: object, **__: object) -> None:
        raise Throttled("the disk does not answer")

    def break_down(cell: str) -> None:
        for name in CALLS:
            monkeypatch.setattr(bench.cells[cell].store, name, fail)
        bench.deployment = bench.another_process()

    return break_down


def leave_pending(bench: Bench, break_down: Callable[[str], None]) -> None:
    """Requests a move of queue 1 to the home cell while its own cell does not answer."""
    break_down("fast")
    with pytest.raises(Unavailable):
        bench.deployment.routes.move("orders", 1, "home")


def repair(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    bench.deployment = bench.another_process()


def send(bench: Bench, body: str, queue: int) -> int | None:
    return bench.deployment.produce("orders", [NewMessage(body=body, queue=queue)])[0].offset


def cells_of(route: SubjectRoute) -> list[str]:
    return [queue.mappings[-1].cell for queue in route.queues]


def pending(bench: Bench) -> list[str | None]:
    return [queue.moving_to for queue in bench.deployment.routes.show("orders").queues]


def test_a_move_from_a_cell_that_does_not_answer_is_pending_and_says_how_to_withdraw_it(
    bench: Bench, break_down: Callable[[str], None]
) -> None:
    bench.deployment.subjects.get("orders")
    break_down("fast")
    bench.deployment.subjects.get("orders")
    with pytest.raises(Unavailable) as refused:
        bench.another_process().routes.move("orders", 1, "home")
    assert str(refused.value) == (
        "the storage of cell fast does not answer: the move of queue 1 of 'orders' to cell 'home' is pending, and is"
        " carried out soon after the cell answers. The route shows it in moving_to (hourwheel queue list orders);"
        " hourwheel queue withdraw orders 1 withdraws it"
    )
    assert pending(bench) == [None, "home", None], "a cached route shows no pending move"


def test_the_sweeper_carries_out_a_pending_move_once_the_cell_answers(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(bench, "a", 1)
    leave_pending(bench, break_down)
    bench.deployment.sweeper.sweep()
    assert pending(bench) == [None, "home", None]
    repair(bench, monkeypatch)
    bench.deployment.sweeper.sweep()
    route = bench.deployment.routes.show("orders")
    assert (cells_of(route), pending(bench)) == (["home", "home", "old"], [None] * 3)
    assert send(bench, "b", 1) == 1


def test_a_pending_move_holds_up_no_move_of_another_queue(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(bench, break_down)
    foreseen = bench.deployment.routes.move("orders", 0, "old", dry_run=True)
    step = bench.deployment.routes.move("orders", 0, "old")
    assert foreseen.after == step.after
    assert (cells_of(step.after), pending(bench)) == (["old", "fast", "old"], [None, "home", None])
    assert send(bench, "a", 0) == 0
    repair(bench, monkeypatch)
    bench.deployment.sweeper.sweep()
    assert cells_of(bench.deployment.routes.show("orders")) == ["old", "home", "old"]


def test_a_spread_moves_the_queues_whose_cells_answer(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down("fast")
    with pytest.raises(Unavailable, match="queue 1 of 'orders' to cell 'home' is pending"):
        bench.deployment.routes.spread("orders", ["home"])
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "fast", "home"]


def test_an_addition_of_queues_that_waits_stops_no_producer_and_is_withdrawn_as_a_whole(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down("fast")
    with pytest.raises(Unavailable, match=r"addition of queues to 'orders' is pending.* pending_queues .*withdraw"):
        bench.deployment.routes.add_queues("orders", 4)
    assert bench.deployment.routes.show("orders").pending_queues == 4
    assert pending(bench) == [None] * 3
    assert (send(bench, "a", 0), send(bench, "b", 2)) == (0, 0), "no log is sealed before all cells answer"
    with pytest.raises(Unavailable, match="an addition of queues of 'orders' is pending and comes first"):
        bench.deployment.routes.move("orders", 0, "old")
    step = bench.deployment.routes.withdraw("orders")
    assert (step.before.pending_queues, step.after.pending_queues) == (4, None)
    repair(bench, monkeypatch)
    bench.deployment.sweeper.sweep()
    assert len(bench.deployment.routes.show("orders").queues) == 3
    assert bench.deployment.routes.add_queues("orders", 4).after.pending_queues is None


@BOTH
def test_an_addition_of_queues_waits_for_a_pending_move(
    bench: Bench, break_down: Callable[[str], None], dry_run: bool
) -> None:
    leave_pending(bench, break_down)
    with pytest.raises(Unavailable, match="a move of a queue of 'orders' is pending and comes first"):
        bench.deployment.routes.add_queues("orders", 4, dry_run=dry_run)


def test_logs_that_a_withdrawn_addition_has_sealed_go_on_in_their_cells(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(bench, "a", 0)
    break_down("fast")
    with pytest.raises(Unavailable):
        bench.deployment.routes.add_queues("orders", 4)
    bench.deployment.context.log(bench.deployment.subjects.get("orders").log(0)).seal()
    step = bench.deployment.routes.withdraw("orders", 2)
    assert [(m.start, m.end, m.cell) for m in step.after.queues[0].mappings if m.state != "expired"] == [
        (0, 1, "home"),
        (1, None, "home"),
    ]
    assert send(bench, "b", 0) == 1


def test_a_withdrawn_move_is_not_carried_out_later(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(bench, "a", 1)
    leave_pending(bench, break_down)
    foreseen = bench.deployment.routes.withdraw("orders", 1, dry_run=True)
    assert (foreseen.dry_run, foreseen.after.queues[1].moving_to) == (True, None)
    assert pending(bench) == [None, "home", None]
    step = bench.deployment.routes.withdraw("orders", 1)
    assert (step.before, step.after) == (foreseen.before, foreseen.after)
    repair(bench, monkeypatch)
    bench.deployment.sweeper.sweep()
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "fast", "old"]
    assert send(bench, "b", 1) == 1
    assert bench.bodies() == ["a", "b"]
    assert bench.deployment.routes.move("orders", 1, "home").after.queues[1].mappings[-1].start == 2


def test_a_withdrawal_is_repeated_without_harm_and_leaves_other_pending_moves(
    bench: Bench, break_down: Callable[[str], None]
) -> None:
    break_down("fast")
    break_down("old")
    for queue in (1, 2):
        with pytest.raises(Unavailable):
            bench.deployment.routes.move("orders", queue, "home")
    assert pending(bench) == [None, "home", "home"]
    bench.deployment.routes.withdraw("orders", 1)
    assert pending(bench) == [None, None, "home"]
    again = bench.deployment.routes.withdraw("orders", 1)
    assert again.before == again.after
    bench.deployment.routes.withdraw("orders")
    assert pending(bench) == [None] * 3
    with pytest.raises(NotFound, match="3 queues, numbered from 0"):
        bench.deployment.routes.withdraw("orders", 7)
    with pytest.raises(NotFound, match="no subject 'parcels'"):
        bench.deployment.routes.withdraw("parcels")


def test_a_move_that_has_sealed_its_log_cannot_be_withdrawn(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(bench, break_down)
    repair(bench, monkeypatch)
    bench.deployment.context.log(bench.deployment.subjects.get("orders").log(1)).seal()
    for dry_run in (True, False):
        with pytest.raises(Conflict, match=r"has begun.*repeat it.*hourwheel queue move orders 1 --to home") as refused:
            bench.deployment.routes.withdraw("orders", 1, dry_run=dry_run)
        assert refused.value.slug == "move-begun"
    assert cells_of(bench.deployment.routes.move("orders", 1, "home").after) == ["home", "home", "old"]


def test_the_withdrawal_of_all_moves_leaves_those_that_have_begun_and_names_them(
    bench: Bench, break_down: Callable[[str], None]
) -> None:
    leave_pending(bench, break_down)
    # An operator whose request was cut off: the log is sealed, and the move not carried out.
    record = subject_record(bench.deployment.context, "orders")
    current = record.load()
    assert current is not None
    assert current.value.change is not None
    targets = (*current.value.change.targets, current.value.route(2).target(2, HOME))
    record.swap(current, msgspec.structs.replace(current.value, change=RouteChange(targets, 3)))
    bench.deployment.context.log(bench.deployment.subjects.get("orders").log(2)).seal()
    with pytest.raises(Conflict, match=r"queue 2 .* has begun.* The pending move of queue 1 would be withdrawn$"):
        bench.deployment.routes.withdraw("orders", dry_run=True)
    assert pending(bench) == [None, "home", "home"]
    with pytest.raises(Conflict, match=r"queue 2 .* has begun.* The pending move of queue 1 was withdrawn$") as refused:
        bench.deployment.routes.withdraw("orders")
    assert (refused.value.slug, pending(bench)) == ("move-begun", [None, None, "home"])
    with pytest.raises(Conflict, match=r"queue 2 .* has begun.* --to home\)$"):
        bench.deployment.routes.withdraw("orders")
    assert cells_of(bench.deployment.routes.move("orders", 2, "home").after) == ["home", "fast", "home"]


def test_a_move_out_of_a_cell_that_was_given_up_cannot_be_withdrawn(
    bench: Bench, break_down: Callable[[str], None]
) -> None:
    break_down("fast")
    record = subject_record(bench.deployment.context, "orders")
    current = record.load()
    assert current is not None
    target = msgspec.structs.replace(current.value.route(1).target(1, "home"), lost=True)
    record.swap(current, msgspec.structs.replace(current.value, change=RouteChange((target,), 3)))
    for queue in (1, None):
        with pytest.raises(Conflict, match="cell in which it is was given up: this move cannot be withdrawn"):
            bench.deployment.routes.withdraw("orders", queue)
    assert pending(bench) == [None, "home", None]


def test_a_log_that_was_sealed_unseen_goes_on_in_its_cell_after_the_withdrawal(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(bench, "a", 1)
    leave_pending(bench, break_down)
    monkeypatch.undo()
    other = bench.another_process()
    other.context.log(other.subjects.get("orders").log(1)).seal()  # by an operator whose answer was lost
    bench.deployment.routes.withdraw("orders", 1)  # by a process that does not reach the cell for some seconds
    bench.deployment = bench.another_process()
    assert send(bench, "b", 1) == 1
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "fast", "old"]


def test_such_a_log_goes_on_while_another_queue_waits_for_its_cell(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down("old")
    with pytest.raises(Unavailable):
        bench.deployment.routes.move("orders", 2, "home")
    bench.deployment.context.log(bench.deployment.subjects.get("orders").log(1)).seal()
    assert send(bench, "a", 1) == 0
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "fast", "old"]
    assert pending(bench) == [None, None, "home"]


def during(bench: Bench, monkeypatch: pytest.MonkeyPatch, act: Callable[[Deployment], Any]) -> Callable[[], list[Any]]:
    """Lets another process act right after the log is sealed for the first time. Returns what it got."""
    got: list[Any] = []
    taken_over = move_steps._taken_over

    def meanwhile(*arguments: Any) -> Any:
        end = taken_over(*arguments)
        monkeypatch.setattr(move_steps, "_taken_over", taken_over)
        try:
            got.append(act(bench.another_process()))
        except Conflict as error:
            got.append(error)
        return end

    monkeypatch.setattr(move_steps, "_taken_over", meanwhile)
    return lambda: got


def test_of_a_withdrawal_and_a_move_at_the_same_moment_the_move_wins_once_it_has_begun(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    got = during(bench, monkeypatch, lambda deployment: deployment.routes.withdraw("orders", 1))
    assert cells_of(bench.deployment.routes.move("orders", 1, "home").after) == ["home", "home", "old"]
    (error,) = got()
    assert error.slug == "move-begun"


def test_the_one_who_finishes_a_move_is_told_that_it_was_withdrawn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The withdrawal does not see the seal, because it was taken after the look at the log."""
    send(bench, "a", 1)
    monkeypatch.setattr("hourwheel.cells.withdrawals.sealed", lambda *_: False)
    got = during(bench, monkeypatch, lambda deployment: deployment.routes.withdraw("orders", 1))
    with pytest.raises(Conflict, match="move of queue 1 of 'orders' to cell 'home' was withdrawn") as told:
        bench.deployment.routes.move("orders", 1, "home")
    assert told.value.slug == "route-changed"
    (step,) = got()
    assert cells_of(step.after) == ["home", "fast", "old"]
    assert send(bench, "b", 1) == 1
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "fast", "old"]
    assert bench.bodies() == ["a", "b"]


def test_the_one_who_withdraws_a_move_is_told_that_it_was_carried_out(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(bench, break_down)
    repair(bench, monkeypatch)
    other, put = bench.another_process(), bench.store.put

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(bench.store, "put", put)
        moves.finish_change(other.registry, "orders")
        return put(*arguments, **options)

    monkeypatch.setattr(bench.store, "put", late)
    with pytest.raises(Conflict, match=r"queue 1 of 'orders' has gone on in cell 'home' meanwhile.*cell 'fast'"):
        bench.deployment.routes.withdraw("orders", 1)
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "home", "old"]


def test_a_drain_is_not_held_up_by_a_pending_move_of_another_cell(
    bench: Bench, break_down: Callable[[str], None]
) -> None:
    bench.deployment.subjects.put("bills")
    bench.deployment.routes.move("bills", 0, "fast")
    break_down("old")
    with pytest.raises(Unavailable):
        bench.deployment.routes.move("orders", 2, "home")
    drained = bench.deployment.cells.drain("fast")
    assert (drained.unmoved, drained.state) == ([], "draining")
    assert sorted(step.after.subject for step in drained.moved) == ["bills", "orders"]
    assert cells_of(bench.deployment.routes.show("orders")) == ["home", "home", "old"]


def test_a_pending_move_to_a_cell_that_is_drained_is_given_up(bench: Bench, break_down: Callable[[str], None]) -> None:
    break_down("old")
    with pytest.raises(Unavailable):
        bench.deployment.routes.move("orders", 2, "fast")
    drained = bench.deployment.cells.drain("fast")
    assert (drained.unmoved, drained.left) == ([], [])
    assert pending(bench) == [None] * 3
    bench.deployment.cells.set_state("fast", "read_only")


def test_a_drain_moves_what_it_can_and_names_the_rest(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.deployment.subjects.put("bills", queues=2)
    bench.deployment.subjects.put("added")
    for subject, queue in (("added", 0), ("bills", 0), ("bills", 1)):
        bench.deployment.routes.move(subject, queue, "fast")
    monkeypatch.setattr(moves, "MAX_MAPPINGS", 2)
    bench.deployment.produce("bills", [NewMessage(body="a", queue=0)])
    for cell in ("old", "fast"):
        bench.deployment.routes.move("bills", 0, cell)
        bench.deployment.produce("bills", [NewMessage(body="a", queue=0)])
        monkeypatch.setattr(moves, "MAX_MAPPINGS", 3)
    foreseen = bench.deployment.cells.drain("fast", dry_run=True)
    assert (foreseen.state, [(each.subject, each.queue) for each in foreseen.unmoved]) == ("normal", [("bills", 0)])
    drained = bench.deployment.cells.drain("fast")
    (unmoved,) = drained.unmoved
    assert (unmoved.subject, unmoved.queue, unmoved.pending) == ("bills", 0, False)
    assert "queue 0 of 'bills' has 3 parts with messages" in unmoved.reason
    assert sorted(step.after.subject for step in drained.moved) == ["added", "bills", "orders"]
    assert cells_of(bench.deployment.routes.show("bills"))[0] == "fast"
    assert cells_of(bench.deployment.routes.show("bills"))[1] != "fast"
    assert bench.deployment.cells.show("fast").state == "draining"
    with pytest.raises(Conflict, match=r"fast' still holds \d parts of queues: .*; drain the cell, .* of 1 queue$"):
        bench.deployment.cells.remove("fast")


def test_a_drain_of_a_cell_that_does_not_answer_leaves_its_moves_pending(
    bench: Bench, break_down: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_down("fast")
    for _ in range(2):
        (unmoved,) = bench.deployment.cells.drain("fast").unmoved
        assert (unmoved.subject, unmoved.queue, unmoved.pending) == ("orders", 1, True)
        assert "the storage of cell fast does not answer" in unmoved.reason
    repair(bench, monkeypatch)
    bench.deployment.sweeper.sweep()
    assert "fast" not in cells_of(bench.deployment.routes.show("orders"))
    assert bench.deployment.cells.drain("fast").unmoved == []


def test_a_drain_chooses_cells_that_answer(bench: Bench, break_down: Callable[[str], None]) -> None:
    bench.deployment.routes.move("orders", 2, "home")  # ``old`` has the fewest queues then
    break_down("old")
    assert bench.deployment.cells.drain("fast").unmoved == []
    assert cells_of(bench.deployment.routes.show("orders")) == ["home"] * 3


def test_a_deleted_subject_does_not_stop_a_drain(bench: Bench, break_down: Callable[[str], None]) -> None:
    break_down("old")
    assert bench.deployment.subjects.delete("orders") == ["old"]
    assert bench.deployment.cells.drain("fast").unmoved == []


def test_a_cell_that_goes_offline_names_the_parts_whose_messages_nobody_gets(bench: Bench) -> None:
    send(bench, "a", 1)
    bench.deployment.cells.drain("fast")
    foreseen = bench.deployment.cells.set_state("fast", "offline", dry_run=True)
    changed = bench.deployment.cells.set_state("fast", "offline")
    for described in (foreseen, changed):
        assert [(each.subject, each.queue, each.messages) for each in described.unreadable] == [("orders", 1, 1)]
    assert bench.deployment.cells.set_state("fast", "normal").unreadable == []


def test_a_move_to_a_cell_that_does_not_answer_is_given_up_also_where_it_would_use_a_part_again(
    bench: Bench, break_down: Callable[[str], None]
) -> None:
    bench.deployment.routes.move("orders", 1, "old")  # the empty part in ``fast`` expires at once
    break_down("fast")
    with pytest.raises(Unavailable, match="queue 1 stays where it is"):
        bench.deployment.routes.move("orders", 1, "fast")
    assert (cells_of(bench.deployment.routes.show("orders"))[1], pending(bench)) == ("old", [None] * 3)
