"""Queues move between cells: nothing is lost, doubled or renumbered, and the next process that finds an unfinished
move finishes it."""

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.cells import cell_record
from hourwheel.cells.moves import finish_change
from hourwheel.cells.plans import Plan, plan_move, plan_queues
from hourwheel.cells.requests import shown_route
from hourwheel.context import Settings
from hourwheel.errors import Conflict, NotFound, Rejected, Sealed
from hourwheel.groups.seeks import offsets
from hourwheel.model.log_names import HOME
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.ports.storage import CellStorage
from hourwheel.registry.records import subject_record
from tests.support import AT_ONCE, Bench, CallByCall


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    def store() -> MemoryStore | CallByCall:
        return CallByCall(MemoryStore()) if request.param == "call by call" else MemoryStore()

    settings = Settings(retry=AT_ONCE, registry_seconds=2)
    cells = {name: CellStorage(store(), MemoryBlobs()) for name in ("fast", "old")}
    bench = Bench(store(), settings=settings, cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.cells.add("old")
    return bench


def route(bench: Bench, queue: int = 0) -> list[tuple[int, int | None, str, str, int]]:
    bench.deployment.registry.forget("orders")
    shown = shown_route(bench.deployment.subjects.get("orders")).queues[queue]
    return [(each.start, each.end, each.cell, each.state, each.generation) for each in shown.mappings]


def sent(bench: Bench, count: int) -> list[int | None]:
    return [bench.send("m")[0].offset for _ in range(count)]


def test_offsets_go_on_where_they_ended_in_the_old_cell(bench: Bench) -> None:
    assert sent(bench, 3) == [0, 1, 2]
    step = bench.deployment.routes.move("orders", 0, "fast")
    assert (step.before.epoch, step.after.epoch) == (0, 1)
    assert sent(bench, 2) == [3, 4]
    assert route(bench) == [(0, 3, "home", "read_only", 1), (3, None, "fast", "normal", 1)]
    assert [message.offset for message in bench.take()] == [0, 1, 2, 3, 4]


def test_an_unordered_group_gets_the_parts_of_a_queue_in_their_order(bench: Bench) -> None:
    for number, cell in enumerate(("fast", "home", "old", "home")):
        bench.send(f"{number}")
        bench.deployment.routes.move("orders", 0, cell)
    bench.send("4")
    assert [message.offset for message in bench.take()] == [0, 1, 2, 3, 4]


def test_an_unordered_group_gets_the_part_of_each_cell_in_its_turn(bench: Bench) -> None:
    for number, cell in enumerate(("fast", "home", "fast", "home")):
        bench.send(f"{number}")
        bench.deployment.routes.move("orders", 0, cell)
    pulls = [bench.pull(1) for _ in range(4)]
    assert [message.offset for (pulled,) in pulls for message in pulled.messages] == [0, 1, 2, 3]


def test_what_a_dry_run_says_is_what_happens_and_it_changes_nothing(bench: Bench) -> None:
    bench.send("a")
    foreseen = bench.deployment.routes.move("orders", 0, "fast", dry_run=True)
    assert route(bench) == [(0, None, "home", "normal", 1)]
    assert bench.send("b")[0].offset == 1
    moved = bench.deployment.routes.move("orders", 0, "fast")
    assert foreseen.after.queues[0].mappings[-1].log == moved.after.queues[0].mappings[-1].log
    assert foreseen.after.queues[0].mappings[-1].start == 1
    assert foreseen.dry_run


def test_another_process_with_the_old_route_is_corrected(bench: Bench) -> None:
    other = bench.another_process()
    other.produce("orders", [NewMessage(body="a")])
    bench.deployment.pull("orders", "billing", request())
    bench.deployment.routes.move("orders", 0, "fast")
    assert other.produce("orders", [NewMessage(body="b")])[0].offset == 1
    assert other.pull("orders", "billing", request()).pulls[0].messages[0].body == "b"


def request() -> PullRequest:
    return PullRequest(consumer="c1")


def test_leases_of_the_old_part_are_settled_there(bench: Bench) -> None:
    bench.send("a")
    (held,) = bench.pull()
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("b")
    (other,) = bench.pull()
    assert bench.settle(held) == "settled"
    assert bench.settle(other, retry=[0]) == "settled"
    assert bench.bodies() == ["b"]


def test_large_batches_lie_in_the_bucket_of_their_cell(bench: Bench) -> None:
    body = "x".join(str(number) for number in range(60_000))
    bench.deployment.subjects.put("orders")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send(body)
    assert len(bench.cells["fast"].blobs.list("batches/")) == 1
    assert bench.blobs.list("batches/") == []
    (pull,) = bench.pull()
    assert bench.settle(pull, retry=[0]) == "settled"
    assert bench.bodies() == [body]


def test_a_move_that_was_cut_off_after_its_request_is_finished_by_a_producer(bench: Bench) -> None:
    bench.send("a")
    requested(bench, "fast")
    bench.deployment.context.log("orders~1/0").seal()
    assert bench.send("b")[0].offset == 1
    assert route(bench) == [(0, 1, "home", "read_only", 1), (1, None, "fast", "normal", 1)]


def test_a_move_that_was_cut_off_is_finished_by_a_pull_and_by_the_sweeper(bench: Bench) -> None:
    bench.send("a")
    requested(bench, "fast")
    bench.deployment.registry.forget("orders")
    assert bench.bodies() == ["a"]
    assert route(bench)[-1][2] == "fast"
    requested(bench, "old")
    bench.deployment.sweeper.sweep()
    assert route(bench)[-1][2] == "old"


def requested(bench: Bench, to: str | Plan) -> None:
    """Begins a move of queue 0 to a cell, or the changes of a plan. The operator dies right after step 1."""
    plan = plan_move(0, to) if isinstance(to, str) else to
    record = subject_record(bench.deployment.context, "orders")
    current = record.load()
    assert current is not None
    change = plan(current.value)
    assert record.swap(current, msgspec.structs.replace(current.value, change=change)).stored


def test_an_operator_who_was_cut_off_repeats_the_move(bench: Bench) -> None:
    bench.send("a")
    requested(bench, "fast")
    step = bench.deployment.routes.move("orders", 0, "fast")
    assert [len(shown.queues[0].mappings) for shown in (step.before, step.after)] == [1, 2]
    assert step.after.queues[0].mappings[-1].cell == "fast"
    with pytest.raises(Conflict, match="is in cell 'fast' already"):
        bench.deployment.routes.move("orders", 0, "fast")


def test_an_operator_who_was_cut_off_repeats_the_spread_the_drain_and_the_added_queues(bench: Bench) -> None:
    bench.send("a")
    requested(bench, "fast")
    assert bench.deployment.routes.spread("orders", ["fast"]).after.queues[0].mappings[-1].cell == "fast"
    requested(bench, HOME)
    (step,) = bench.deployment.cells.drain("fast").moved
    assert [shown.queues[0].mappings[-1].cell for shown in (step.before, step.after)] == ["fast", "home"]
    requested(bench, plan_queues(3))
    added = bench.deployment.routes.add_queues("orders", 3)
    assert [len(shown.queues) for shown in (added.before, added.after)] == [1, 3]


def test_a_log_that_was_sealed_and_forgotten_is_continued_in_its_own_cell(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.context.log("orders~1/0").seal()
    assert bench.send("b")[0].offset == 1
    assert route(bench)[-1][:3] == (1, None, "home")


def test_a_target_that_stopped_taking_queues_is_given_up(bench: Bench) -> None:
    bench.send("a")
    requested(bench, "fast")
    bench.deployment.cells.set_state("old", "read_only")
    bench.deployment.context.log("orders~1/0").seal()
    record = cell_record(bench.deployment.context, "fast")
    current = record.load()
    assert current is not None
    record.swap(current, msgspec.structs.replace(current.value, state="draining"))
    finish_change(bench.deployment.registry, "orders")
    assert bench.send("b")[0].offset == 1
    assert [mapping[2] for mapping in route(bench)] == ["home", "home"]


def test_an_emptied_part_expires_and_its_place_is_used_again(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("b")
    emptied(bench)
    assert [state for *_, state, _ in route(bench)] == ["expired", "normal"]
    bench.deployment.routes.move("orders", 0, "home")
    assert bench.send("c")[0].offset == 2
    assert route(bench) == [(1, 2, "fast", "read_only", 1), (2, None, "home", "normal", 2)]


def emptied(bench: Bench) -> None:
    while pulls := bench.pull():
        for pull in pulls:
            bench.settle(pull)
    bench.clock.ms += 4 * 86_400_000
    for _ in range(2):
        bench.deployment.sweeper.sweep()


def test_a_late_writer_of_the_old_generation_never_lands_in_the_new_one(bench: Bench) -> None:
    bench.send("a")
    late = bench.deployment.context.log("orders~1/0")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("b")
    emptied(bench)
    bench.deployment.routes.move("orders", 0, "home")
    with pytest.raises(Sealed):
        late.reserve(1)


def test_moves_that_cannot_be_are_refused(bench: Bench) -> None:
    bench.send("a")
    with pytest.raises(Conflict, match="is in cell 'home' already"):
        bench.deployment.routes.move("orders", 0, "home")
    with pytest.raises(NotFound, match="no cell 'nowhere'"):
        bench.deployment.routes.move("orders", 0, "nowhere")
    with pytest.raises(NotFound, match="1 queue, numbered from 0"):
        bench.deployment.routes.move("orders", 7, "fast")
    bench.deployment.cells.set_state("fast", "read_only")
    with pytest.raises(Conflict, match="is read_only"):
        bench.deployment.routes.move("orders", 0, "fast")
    bench.deployment.cells.add("old", ("delay",))
    with pytest.raises(Conflict, match="of the kind delay"):
        bench.deployment.routes.move("orders", 0, "old")


def test_of_two_operators_one_is_told_that_the_queue_moved(bench: Bench) -> None:
    bench.send("a")
    requested(bench, "fast")
    with pytest.raises(Conflict, match="has a pending move to cell 'fast'"):
        bench.deployment.routes.move("orders", 0, "old")


def test_more_queues_are_a_new_era(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.subjects.put("orders", queues=3)
    subject = bench.deployment.subjects.get("orders")
    assert subject.queues == 3
    assert [[mapping.era for mapping in each.mappings] for each in subject.routes] == [[0, 1], [1], [1]]
    assert [accepted.queue for accepted in bench.deployment.produce("orders", [NewMessage(body="x", queue=2)])] == [2]
    with pytest.raises(Rejected, match="3 queues"):
        bench.deployment.produce("orders", [NewMessage(body="x", queue=3)])


def test_a_group_that_starts_at_the_latest_message_begins_behind_the_closed_parts(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("b")
    bench.deployment.groups.put("orders", "late", start="latest")
    bench.deployment.routes.move("orders", 0, "old")
    bench.send("c")
    assert bench.bodies(group="late") == ["c"]
    bench.deployment.seeks().seek("orders", "late", to="start")
    assert bench.bodies(group="late") == ["a", "b", "c"]


def test_such_a_group_begins_there_also_when_the_part_that_was_open_then_is_gone(bench: Bench) -> None:
    bench.send("old")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.deployment.groups.put("orders", "late", start="latest")
    bench.deployment.routes.move("orders", 0, "home")  # nothing was sent meanwhile: the part in between expires at once
    bench.send("new")
    bench.clock.pass_time(5)
    assert route(bench)[1] == (1, 1, "fast", "expired", 1)
    assert bench.bodies(group="late") == ["new"]
    bench.deployment.routes.move("orders", 0, "fast")  # uses that part again
    bench.deployment.registry.forget("orders")
    bench.send("newer")
    assert bench.bodies(group="late") == ["newer"]


def test_seeks_find_their_part(bench: Bench) -> None:
    for body in "abcdef":
        bench.send(body)
        bench.clock.ms += 1_000
        if body in "bd":
            bench.deployment.routes.move("orders", 0, "fast" if body == "b" else "old")
    assert bench.bodies() == list("abcdef")
    assert offsets(bench.deployment.seeks().seek_offset("orders", "billing", 0, 3)) == {0: 3}
    assert bench.bodies() == list("def")
    assert offsets(bench.deployment.seeks().seek_time("orders", "billing", bench.clock.ms - 5_500)) == {0: 1}
    assert bench.bodies() == list("bcdef")
    assert offsets(bench.deployment.seeks().seek("orders", "billing", to="end")) == {0: 6}
    assert bench.bodies() == []
    assert offsets(bench.deployment.seeks().seek("orders", "billing", to="start")) == {0: 0}
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.waiting, lag.queues[0].offset, lag.queues[0].end) == (6, 0, 6)
    with pytest.raises(Rejected, match="beyond the queue's end 6"):
        bench.deployment.seeks().seek_offset("orders", "billing", 0, 7)
    assert bench.bodies() == list("abcdef")


def test_a_delayed_message_goes_to_the_cell_in_which_its_queue_is_then(bench: Bench) -> None:
    bench.send_later("later", delay="10m")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.turn(700)
    (message,) = bench.take()
    assert (message.body, message.offset) == ("later", 0)
    assert bench.cells["fast"].store.counter("fast:orders~1/0.1").rows == 1


def test_a_deleted_subject_leaves_nothing_in_any_cell(bench: Bench) -> None:
    bench.send("a")
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("b")
    bench.pull()
    bench.deployment.subjects.delete("orders")
    assert bench.cells["fast"].store.counter("fast:orders~1/0.1").sealed
    assert bench.deployment.cells.left("fast") == []
    assert bench.send("c")[0].offset == 0


def test_dead_letters_are_read_and_sent_again_after_their_queue_has_moved(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0, 2])
    bench.deployment.routes.move("orders", 0, "fast")
    bench.send("d")
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0])
    bench.deployment.routes.move("orders", 0, "old")
    bench.deployment.cells.drain("fast")
    letters = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert [(letter.body, letter.queue, letter.offset) for letter in letters] == [("a", 0, 0), ("c", 0, 2), ("d", 0, 3)]
    for letter in letters:
        assert bench.deployment.dead_letters("orders", "billing").get(letter.dead_id or "").body == letter.body
    assert bench.deployment.dead_letters("orders", "billing").redrive(lambda letter, _: letter.index == 0) == 2
    assert sorted(bench.bodies(), key=str) == ["a", "d"]
    assert bench.deployment.dead_letters("orders", "billing").drop(lambda *_: True) == 1
    assert bench.deployment.groups.lag("orders", "billing").dead == 0
