"""A cell whose storage is gone is given up: its queues go on elsewhere, and nothing waits for what is lost."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells import give_up as lost_cells
from hourwheel.cells import lost_cells as parts
from hourwheel.cells.cells import shown
from hourwheel.cells.moves import finish_change
from hourwheel.context import Settings
from hourwheel.errors import CellUnavailable, Conflict, NotFound, Rejected, Unavailable
from hourwheel.groups.peek import PeekStart
from hourwheel.model import routes
from hourwheel.model.messages import NewMessage
from hourwheel.model.routes import LOST_GAP, MoveTarget, RouteChange
from hourwheel.ports.storage import CellStorage
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.trace.messages import SearchSpan
from tests.failing import FAILURES
from tests.support import AT_ONCE, Bench
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage


@pytest.fixture(params=FAILURES)
def fast(request: pytest.FixtureRequest) -> Outage:
    return Outage(FAILURES[request.param])


@pytest.fixture
def bench(fast: Outage) -> Bench:
    """Returns a bench with the subject ``orders``, whose queue 0 is in the home cell and queue 1 in cell fast, each
    with a message, and with the subject ``far``, whose only queue is in cell fast."""
    cells = {"fast": CellStorage(fast, MemoryBlobs()), "spare": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.groups.put("orders", "ordered", ordered=True)
    bench.deployment.routes.move("orders", 1, "fast")
    bench.deployment.subjects.put("far")
    bench.deployment.routes.move("far", 0, "fast")
    send(bench, "here", 0)
    send(bench, "there", 1)
    return bench


def send(bench: Bench, body: str, queue: int) -> int | None:
    (sent,) = bench.deployment.produce("orders", [NewMessage(body=body, key=f"k{queue}", queue=queue)])
    return sent.offset


def lose(bench: Bench, fast: Outage) -> None:
    """Lets the storage of the cell vanish, and sets the cell off line."""
    fast.down = ALL
    bench.deployment.cells.set_state("fast", "offline")


def give_up(bench: Bench, fast: Outage) -> None:
    lose(bench, fast)
    bench.deployment.cells.remove("fast", lost=True)


def take_all(bench: Bench, group: str) -> list[str | None]:
    """Pulls and settles until nothing is left."""
    bodies: list[str | None] = []
    while pulls := bench.pull(group=group):
        for pull in pulls:
            bodies += [message.body for message in pull.messages]
            bench.settle(pull, group=group)
    return bodies


def states(bench: Bench, subject: str, queue: int) -> list[tuple[str, str]]:
    return [(shown(each.cell), each.state) for each in bench.deployment.subjects.get(subject).route(queue).mappings]


def test_only_a_cell_that_is_off_line_is_given_up(bench: Bench, fast: Outage) -> None:
    for dry_run in (True, False):
        with pytest.raises(Conflict, match=r"cell 'fast' is normal: .* set its state to offline"):
            bench.deployment.cells.remove("fast", lost=True, dry_run=dry_run)
    with pytest.raises(Conflict, match="takes the messages of 2 queues"):
        bench.deployment.cells.set_state("fast", "offline")
    with pytest.raises(Conflict, match="'home' holds subjects and groups"):
        bench.deployment.cells.remove("home", lost=True)
    with pytest.raises(NotFound, match="no cell 'spare'"):
        bench.deployment.cells.remove("spare", lost=True)
    fast.down = ALL
    assert bench.deployment.cells.set_state("fast", "offline").state == "offline"


def test_the_answer_tells_what_is_lost_and_where_each_queue_goes_on(bench: Bench, fast: Outage) -> None:
    lose(bench, fast)
    foreseen = bench.deployment.cells.remove("fast", lost=True, dry_run=True)
    assert bench.deployment.cells.show("fast").state == "offline"
    removed = bench.deployment.cells.remove("fast", lost=True)
    assert removed == foreseen
    assert [(each.subject, each.queue, each.start, each.end) for each in removed.lost] == [
        ("far", 0, 0, None),
        ("orders", 1, 0, None),
    ]
    assert {(each.next_start, each.next_cell) for each in removed.lost} == {(LOST_GAP, "home")}
    assert [cell.cell for cell in bench.deployment.cells.all()] == ["home"]
    for dry_run in (True, False):
        assert bench.deployment.cells.remove("fast", lost=True, dry_run=dry_run) == removed, (
            "the request may be repeated"
        )
    assert (removed.queues, removed.parts, removed.state) == (0, 0, "removed")


@pytest.mark.parametrize("group", ["billing", "ordered"])
def test_groups_go_on_in_the_new_parts_and_wait_for_nothing(bench: Bench, fast: Outage, group: str) -> None:
    bench.pull(1, group=group)
    give_up(bench, fast)
    bench.clock.pass_time(60)
    bench.deployment.sweeper.sweep()
    assert send(bench, "new", 1) == LOST_GAP
    lag = bench.deployment.groups.lag("orders", group)
    assert (lag.waiting + lag.retrying, lag.cells_out) == (2, [])
    assert sorted(map(str, take_all(bench, group))) == ["here", "new"]
    lag = bench.deployment.groups.lag("orders", group)
    assert (lag.waiting, lag.in_flight, lag.retrying, lag.oldest_at) == (0, 0, 0, None)
    assert [(queue.offset, queue.end) for queue in lag.queues] == [(1, 1), (LOST_GAP + 1, LOST_GAP + 1)]


def test_no_offset_is_given_out_twice(bench: Bench, fast: Outage) -> None:
    before = [send(bench, str(number), 1) for number in range(3)]
    give_up(bench, fast)
    after = [send(bench, str(number), 1) for number in range(3)]
    assert len({*before, *after}) == 6


def test_without_the_gap_offsets_are_given_out_twice(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LOST_GAP", 0)
    with pytest.raises(AssertionError):
        test_no_offset_is_given_out_twice(bench, fast)


def test_a_queue_whose_offsets_are_used_up_is_not_continued(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(bench, fast)
    monkeypatch.setattr(parts, "MOST_OFFSETS", LOST_GAP)
    for dry_run in (True, False):
        with pytest.raises(Conflict, match=r"has no offsets left.*: delete the subject"):
            bench.deployment.cells.remove("fast", lost=True, dry_run=dry_run)
    assert bench.deployment.cells.set_state("fast", "normal").state == "normal", "nothing was given up"


def test_a_pending_move_of_another_queue_stays(bench: Bench, fast: Outage) -> None:
    spare = bench.cells["spare"] = CellStorage(Outage(), MemoryBlobs())
    bench.deployment.cells.add("spare")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.routes.move("orders", 0, "spare")
    assert isinstance(spare.store, Outage)
    spare.store.down = ALL
    with pytest.raises(Unavailable, match="pending"):
        bench.deployment.routes.move("orders", 0, "home")
    give_up(bench, fast)
    assert states(bench, "orders", 1)[-2:] == [("fast", "lost"), ("home", "normal")]
    spare.store.down = frozenset()
    bench.deployment.sweeper.sweep()
    assert states(bench, "orders", 0)[-1] == ("home", "normal")
    assert send(bench, "new", 1) == LOST_GAP


def test_seeks_and_reads_pass_over_the_gap(bench: Bench, fast: Outage) -> None:
    give_up(bench, fast)
    before_ms = bench.clock.ms
    bench.clock.pass_time(10)
    send(bench, "new", 1)
    send(bench, "newer", 1)
    assert sorted(map(str, take_all(bench, "billing"))) == ["here", "new", "newer"]
    deployment = bench.deployment
    for offset in (0, 5, LOST_GAP - 1, LOST_GAP):
        assert deployment.seeks().seek_offset("orders", "billing", 1, offset)[1].offset == LOST_GAP
        assert take_all(bench, "billing") == ["new", "newer"]
        page = deployment.messages.peek("orders", 1, PeekStart(offset=offset), 10)
        assert [message.body for message in page.messages] == ["new", "newer"]
    assert deployment.seeks().seek_time("orders", "billing", before_ms + 1)[1].offset == LOST_GAP
    assert take_all(bench, "billing") == ["new", "newer"]


def test_a_part_that_was_closed_before_ends_where_it_was_sealed(bench: Bench, fast: Outage) -> None:
    bench.deployment.routes.move("orders", 1, "home")
    lose(bench, fast)
    lost = {each.subject: each for each in bench.deployment.cells.remove("fast", lost=True).lost}
    assert (lost["orders"].start, lost["orders"].end, lost["orders"].next_start) == (0, 1, None)
    assert states(bench, "orders", 1) == [("fast", "lost"), ("home", "normal")]
    assert send(bench, "next", 1) == 1
    assert sorted(map(str, take_all(bench, "ordered"))) == ["here", "next"]


def test_delayed_messages_for_the_lost_cell_go_where_the_queue_goes_on(bench: Bench, fast: Outage) -> None:
    bench.send_later("at noon", delay=60, subject="far")
    lose(bench, fast)
    bench.turn(90)
    bench.deployment.cells.remove("fast", lost=True)
    bench.turn(90)
    assert bench.bodies(subject="far") == ["at noon"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_hand_over_that_the_loss_cut_off_is_made_again(bench: Bench, fast: Outage, stored: bool) -> None:
    bench.send_later("at noon", delay=60, subject="far")
    fast.down = frozenset() if stored else frozenset({"put"})
    bench.turn(90)
    lose(bench, fast)
    bench.deployment = bench.another_process()
    bench.deployment.cells.remove("fast", lost=True)
    bench.turn(90)
    bench.turn(4_000)
    # Nobody can tell whether the row was stored and consumed: once more is better than never.
    assert bench.bodies(subject="far") == ["at noon"]


@pytest.mark.parametrize("stored", [True, False])
def test_a_batch_with_an_idempotency_key_that_is_repeated_is_stored_in_the_new_part(
    bench: Bench, fast: Outage, stored: bool
) -> None:
    key = IdempotencyKey(key="k", digest=b"d")
    messages = [NewMessage(body="once")]
    fast.down = frozenset() if stored else frozenset({"put"})
    try:
        bench.deployment.produce("far", messages, key)
    except Unavailable:
        assert not stored
    give_up(bench, fast)
    offsets = [bench.deployment.produce("far", [NewMessage(body="once")], key)[0].offset for _ in range(2)]
    assert offsets[0] == offsets[1]
    assert bench.bodies(subject="far") == ["once"]


def test_the_name_of_a_lost_cell_is_not_used_again(bench: Bench, fast: Outage) -> None:
    give_up(bench, fast)
    fast.down = frozenset()
    unopened = bench.another_process()
    object.__setattr__(unopened.context, "cells", None)
    for deployment in (bench.deployment, unopened):
        calls: list[Callable[[], object]] = [
            partial(deployment.cells.add, "fast", dry_run=True),
            partial(deployment.cells.add, "fast"),
            partial(deployment.cells.show, "fast"),
            partial(deployment.cells.drain, "fast"),
            partial(deployment.cells.set_state, "fast", "normal"),
            partial(deployment.cells.remove, "fast"),
            partial(deployment.routes.move, "orders", 0, "fast"),
            partial(deployment.routes.spread, "orders", ["fast"]),
        ]
        for call in calls:
            with pytest.raises(Rejected, match="cell 'fast' was given up: its name is not used again; use another na"):
                call()
        with pytest.raises(CellUnavailable, match="cell fast was given up: what it held is lost"):
            deployment.context.log("fast:orders~1/1.1").totals()


def test_nobody_sets_the_state_of_a_cell_that_is_being_given_up(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(bench, fast)

    def cut_off(*_: object) -> None:
        raise Unavailable("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(lost_cells, "give_up_parts", cut_off)
        with pytest.raises(Unavailable, match="cut off"):
            bench.deployment.cells.remove("fast", lost=True)
    changes: list[Callable[[], object]] = [
        lambda: bench.deployment.cells.set_state("fast", "normal"),
        lambda: bench.deployment.cells.drain("fast"),
        lambda: bench.deployment.cells.add("fast"),
    ]
    for change in changes:
        with pytest.raises(Conflict, match="was given up: finish with hourwheel cell remove fast --lost"):
            change()
    foreseen = bench.deployment.cells.remove("fast", lost=True, dry_run=True)
    removed = bench.deployment.cells.remove("fast", lost=True)
    assert (len(removed.lost), removed) == (2, foreseen)


def test_a_dry_run_after_an_interrupted_run_lists_what_is_lost_by_now_too(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(bench, fast)
    real = parts.give_up_parts

    def cut_off(registry: Any, name: str, *arguments: Any) -> None:
        if name == "orders":
            raise Unavailable("cut off")
        real(registry, name, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(lost_cells, "give_up_parts", cut_off)
        with pytest.raises(Unavailable, match="cut off"):
            bench.deployment.cells.remove("fast", lost=True)
    assert [state for _, state in states(bench, "far", 0)] == ["lost", "normal"]
    foreseen = bench.deployment.cells.remove("fast", lost=True, dry_run=True)
    assert [each.subject for each in foreseen.lost] == ["far", "orders"]
    assert bench.deployment.cells.remove("fast", lost=True) == foreseen


def test_a_cell_whose_storage_can_be_read_is_not_given_up(bench: Bench, fast: Outage) -> None:
    bench.deployment.cells.drain("fast")
    bench.deployment.cells.set_state("fast", "offline")
    for dry_run in (True, False):
        with pytest.raises(Conflict, match="its storage can be read: set its state to normal and drain it") as refused:
            bench.deployment.cells.remove("fast", lost=True, dry_run=dry_run)
        assert refused.value.slug == "cell-state"
    bench.deployment.cells.set_state("fast", "normal")
    assert sorted(map(str, take_all(bench, "billing"))) == ["here", "there"]


@pytest.mark.parametrize("call", ["counter", "get"])
def test_a_cell_of_which_only_some_tables_are_lost_is_given_up(bench: Bench, fast: Outage, call: str) -> None:
    lose(bench, fast)
    fast.down = frozenset({call})
    assert len(bench.deployment.cells.remove("fast", lost=True).lost) == 2


def test_a_removal_says_how_to_give_up_a_cell_that_is_out_of_reach(bench: Bench, fast: Outage) -> None:
    give_up_command = "If the storage of the cell is gone for good, give it up: {}hourwheel cell remove fast --lost"
    first = give_up_command.format("hourwheel cell set-state fast offline, then ")
    with pytest.raises(Conflict, match=r"is normal: drain it first$"):
        bench.deployment.cells.remove("fast")
    fast.down = ALL
    with pytest.raises(Conflict, match=f"is normal: drain it first. {first}$"):
        bench.deployment.cells.remove("fast")
    bench.deployment.cells.set_state("fast", "draining")
    with pytest.raises(Conflict, match=f"an unknown number of messages.*{first}$"):
        bench.deployment.cells.remove("fast")
    bench.deployment.cells.set_state("fast", "offline")
    with pytest.raises(Conflict, match=f"an unknown number of messages.*{give_up_command.format('')}$"):
        bench.deployment.cells.remove("fast")


def test_a_dry_run_foresees_the_cells_where_a_pending_move_is_withdrawn(bench: Bench, fast: Outage) -> None:
    bench.deployment.cells.add("spare")
    fast.down = ALL
    with pytest.raises(Unavailable, match="pending"):
        bench.deployment.routes.move("far", 0, "spare")
    bench.deployment.cells.set_state("fast", "offline")
    foreseen = bench.deployment.cells.remove("fast", lost=True, dry_run=True)
    assert bench.deployment.cells.remove("fast", lost=True) == foreseen


def test_of_two_operators_who_give_a_cell_up_one_is_told(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(bench, fast)
    other, real = bench.another_process(), parts.give_up_parts

    def late(*arguments: Any) -> Any:
        monkeypatch.setattr(lost_cells, "give_up_parts", real)
        assert len(other.cells.remove("fast", lost=True).lost) == 2
        return real(*arguments)

    monkeypatch.setattr(lost_cells, "give_up_parts", late)
    with pytest.raises(Conflict, match="changed by somebody else"):
        bench.deployment.cells.remove("fast", lost=True)
    assert states(bench, "far", 0) == [("fast", "lost"), ("home", "normal")]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_call_that_is_cut_off_at_any_write_is_repeated(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    lose(bench, fast)
    calls = 0
    with monkeypatch.context() as patched:

        def counted(real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == cut:
                raise Unavailable("cut off")
            return real(*arguments, **named)

        for verb in ("put", "begin"):
            patched.setattr(bench.store, verb, partial(counted, getattr(bench.store, verb)))
        try:
            bench.deployment.cells.remove("fast", lost=True)
        except Unavailable:
            removed = bench.another_process().cells.remove("fast", lost=True)
            assert [each.next_start for each in removed.lost] == [LOST_GAP, LOST_GAP]
    assert states(bench, "orders", 1)[-2:] == [("fast", "lost"), ("home", "normal")]
    assert send(bench, "new", 1) == LOST_GAP


@pytest.mark.parametrize("target", ["home", "fast"])
def test_a_change_that_waits_for_the_lost_cell_is_withdrawn(
    bench: Bench, fast: Outage, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    fast.down = ALL
    record = parts.subject_record(bench.deployment.context, "orders")
    current = record.load()
    assert current is not None
    queue = 1 if target == "home" else 0
    change = RouteChange((MoveTarget(queue, target, current.value.route(queue).parts, 1),), 2)
    record.swap(current, parts.msgspec.structs.replace(current.value, change=change))
    give_up(bench, fast)
    subject = bench.deployment.subjects.get("orders")
    assert (subject.change, states(bench, "orders", 1)[-2:]) == (None, [("fast", "lost"), ("home", "normal")])
    assert send(bench, "new", 1) == LOST_GAP
    assert send(bench, "also", 0) == 1
    assert finish_change(bench.deployment.registry, "orders") == bench.deployment.subjects.get("orders")


def test_a_deleted_subject_with_parts_in_the_lost_cell_is_erased(bench: Bench, fast: Outage) -> None:
    lose(bench, fast)
    for _ in range(2):
        assert bench.deployment.subjects.delete("far") == ["fast"]
    bench.deployment.sweeper.sweep()
    with pytest.raises(Unavailable, match="erased in cell fast once the sweeper can reach it, or once it is given up"):
        bench.deployment.subjects.put("far")
    bench.deployment.cells.remove("fast", lost=True)
    bench.deployment.sweeper.sweep()
    bench.send("again", subject="far")
    assert bench.bodies(subject="far") == ["again"]


@pytest.mark.parametrize("group", [None, "billing"])
def test_a_trace_of_a_message_behind_the_gap_is_complete(bench: Bench, fast: Outage, group: str | None) -> None:
    give_up(bench, fast)
    send(bench, "new", 1)
    take_all(bench, "billing")
    (traced,) = bench.deployment.messages.trace("orders", f"1:{LOST_GAP}", SearchSpan(), group).messages
    assert (traced.offset, traced.groups[0].state) == (LOST_GAP, "acknowledged")
