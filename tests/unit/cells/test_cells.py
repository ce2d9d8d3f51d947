"""Cells are added, drained, taken off line and removed; one that is out of reach holds up nobody else."""

import random
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Conflict, NotFound, Rejected, Throttled, Unavailable
from hourwheel.model.messages import NewMessage
from hourwheel.model.route_records import CellKind
from hourwheel.ports.storage import CellStorage
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, Bench


@pytest.fixture
def bench() -> Bench:
    cells = {name: CellStorage(MemoryStore(), MemoryBlobs()) for name in ("fast", "old")}
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.routes.move("orders", 1, "fast")
    return bench


def send(bench: Bench, body: str, queue: int) -> None:
    bench.deployment.produce("orders", [NewMessage(body=body, queue=queue)])


def break_down(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every call of the cell ``fast`` fail from now on."""

    def fail(*_: object, **__: object) -> None:
        raise Throttled("the disk does not answer")

    for name in ("transact", "counter", "counters", "get", "scan"):
        monkeypatch.setattr(bench.cells["fast"].store, name, fail)
    bench.deployment = bench.another_process()


def test_a_cell_without_storage_is_not_added(bench: Bench) -> None:
    with pytest.raises(NotFound, match="--cell nowhere=DIRECTORY"):
        bench.deployment.cells.add("nowhere")
    with pytest.raises(Conflict, match="'home' holds subjects and groups"):
        bench.deployment.cells.add("home")
    with pytest.raises(Rejected, match="1 to 30 lower-case letters"):
        bench.deployment.cells.show("No Name")


def test_a_dry_run_says_what_becomes_of_a_cell_that_was_added_before(bench: Bench) -> None:
    bench.deployment.cells.add("old", ["real-time"])
    bench.deployment.cells.set_state("old", "draining")
    wanted: list[list[CellKind] | None] = [None, ["delay"]]
    for kinds in wanted:
        foreseen = bench.deployment.cells.add("old", kinds, dry_run=True)
        assert bench.deployment.cells.show("old").kinds == ("real-time",)
        assert bench.deployment.cells.add("old", kinds) == foreseen
        bench.deployment.cells.add("old", ["real-time"])


def test_a_cell_to_which_queues_send_is_neither_read_only_nor_off_line_nor_removed(bench: Bench) -> None:
    for state in ("read_only", "offline"):
        with pytest.raises(Conflict, match="takes the messages of 1 queue "):
            bench.deployment.cells.set_state("fast", state)
    with pytest.raises(Conflict, match="is normal: drain it first"):
        bench.deployment.cells.remove("fast")


def test_a_cell_that_was_removed_empty_may_be_added_again_as_its_refusal_says(bench: Bench) -> None:
    bench.deployment.cells.add("old")
    bench.deployment.cells.drain("old")
    assert bench.deployment.cells.remove("old").state == "removed"
    with pytest.raises(NotFound, match="there is no cell 'old': add it with hourwheel cell add"):
        bench.deployment.routes.move("orders", 0, "old")
    bench.deployment.cells.add("old")
    bench.deployment.routes.move("orders", 0, "old")


def test_of_two_operators_who_change_a_cell_at_once_one_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    other, put = bench.another_process(), bench.store.put

    def late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(bench.store, "put", put)
        other.cells.set_state("fast", "draining")
        return put(*arguments, **options)

    monkeypatch.setattr(bench.store, "put", late)
    with pytest.raises(Conflict, match="changed by somebody else"):
        bench.deployment.cells.add("fast", ["real-time"])
    shown = bench.deployment.cells.show("fast")
    assert (shown.state, set(shown.kinds)) == ("draining", {"real-time", "delay"})


def test_a_drain_moves_every_queue_and_tells_what_is_left(bench: Bench) -> None:
    send(bench, "a", 1)
    bench.pull()
    foreseen = bench.deployment.cells.drain("fast", dry_run=True)
    assert bench.deployment.cells.show("fast").state == "normal"
    assert foreseen.moved[0].after.queues[1].mappings[-1].cell == "home"
    drained = bench.deployment.cells.drain("fast")
    assert [(each.queue, each.writable, each.messages, each.leases) for each in drained.left] == [(1, False, 1, 1)]
    kept_until = rfc3339(bench.clock.ms + bench.deployment.subjects.get("orders").retention_ms)
    assert [each.kept_until for each in (*foreseen.left, *drained.left)] == [kept_until] * 2
    for dry_run in (True, False):
        with pytest.raises(Conflict) as refused:
            bench.deployment.cells.remove("fast", dry_run=dry_run)
        assert str(refused.value) == (
            "cell 'fast' still holds 1 closed part of queues: orders/1 (1 message, 1 lease); wait until their messages"
            f" have expired, at {kept_until} at the earliest"
        )
    assert bench.deployment.cells.drain("fast").moved == []


def test_the_last_cell_that_takes_queues_is_not_drained_into_nothing(bench: Bench) -> None:
    with pytest.raises(Conflict, match="cannot be drained"):
        bench.deployment.cells.drain("home")


def test_groups_go_on_while_a_cell_is_out_of_reach(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    send(bench, "here", 0)
    send(bench, "there", 1)
    break_down(bench, monkeypatch)
    assert bench.bodies() == ["here"]
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.cells_out, [queue.cells_out for queue in lag.queues]) == (["fast"], [[], ["fast"]])
    assert (lag.queues[1].offset, lag.queues[1].end) == (None, None)
    send(bench, "more", 0)
    with pytest.raises(Unavailable, match="cell fast does not answer"):
        send(bench, "x", 1)
    bench.deployment.sweeper.sweep()
    assert bench.bodies() == ["more"]
    monkeypatch.undo()
    bench.deployment = bench.another_process()
    assert bench.deployment.groups.lag("orders", "billing").waiting == 1
    assert bench.bodies() == ["there"]


def test_a_cell_that_fails_in_the_middle_of_a_move_leaves_the_queue_where_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(bench, "a", 0)
    break_down(bench, monkeypatch)
    with pytest.raises(Unavailable, match="queue 0 stays where it is"):
        bench.deployment.routes.move("orders", 0, "fast")
    accepted = bench.deployment.produce("orders", [NewMessage(body="b", queue=0)])
    assert (accepted[0].queue, accepted[0].offset) == (0, 1)
    assert bench.bodies() == ["a", "b"]


def test_the_sweeper_looks_at_the_other_queues_while_a_change_waits_for_a_cell(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(bench, "here", 0)
    bench.pull(lease=5)
    break_down(bench, monkeypatch)
    with pytest.raises(Unavailable, match="cell fast does not answer"):
        bench.deployment.routes.add_queues("orders", 3)
    bench.clock.pass_time(6)
    assert bench.deployment.sweeper.sweep().ended_leases == 1
    assert [(message.body, message.attempt) for message in bench.take()] == [("here", 1)]
    monkeypatch.undo()
    bench.deployment = bench.another_process()
    bench.deployment.sweeper.sweep()
    assert bench.deployment.subjects.get("orders").queues == 3


def test_a_cell_off_line_is_not_read_until_it_is_normal_again(bench: Bench) -> None:
    send(bench, "there", 1)
    bench.deployment.cells.drain("fast")
    bench.deployment.cells.set_state("fast", "offline")
    send(bench, "here", 1)
    assert bench.bodies() == ["here"]
    assert bench.deployment.groups.lag("orders", "billing").cells_out == ["fast"]
    bench.deployment.cells.set_state("fast", "normal")
    assert bench.bodies() == ["there"]


def test_queues_spread_with_as_few_moves_as_possible(bench: Bench) -> None:
    bench.deployment.cells.add("old")
    bench.deployment.routes.add_queues("orders", 6)
    step = bench.deployment.routes.spread("orders")
    cells = [queue.mappings[-1].cell for queue in step.after.queues]
    assert sorted(cells) == ["fast", "fast", "home", "home", "old", "old"]
    assert (cells[0], cells[1]) == ("home", "fast")
    assert bench.deployment.routes.spread("orders").after.epoch == step.after.epoch


def test_an_ordered_group_reads_a_large_batch_in_the_cell_of_its_queue() -> None:
    cells = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024), cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", queues=1)
    bench.deployment.routes.move("orders", 0, "fast")
    bench.deployment.groups.put("orders", "billing", ordered=True)
    body = random.Random(1).randbytes(4_000).hex()
    bench.send(body, key="k")
    assert cells["fast"].blobs.list("batches/")
    assert bench.bodies() == [body]


def test_a_cell_with_queues_stays_of_the_kind_that_takes_them(bench: Bench) -> None:
    bench.deployment.subjects.put("bills", queues=1)
    bench.deployment.routes.move("bills", 0, "fast")
    for dry_run in (True, False):
        with pytest.raises(Conflict) as refused:
            bench.deployment.cells.add("fast", ["delay"], dry_run=dry_run)
        assert refused.value.slug == "cell-in-use"
        assert "takes the messages of 2 queues (bills/0, orders/1)" in str(refused.value)
        assert "drain the cell, or move these queues" in str(refused.value)
        assert bench.deployment.cells.show("fast").kinds == ("real-time", "delay")
    assert bench.deployment.cells.add("fast", ["real-time"]).kinds == ("real-time",)
    bench.deployment.cells.drain("fast")
    assert bench.deployment.cells.add("fast", ["delay"]).kinds == ("delay",)


def test_a_refusal_says_how_many_queues_it_does_not_list(bench: Bench) -> None:
    bench.deployment.subjects.put("wide", queues=22)
    for queue in range(22):
        bench.deployment.routes.move("wide", queue, "fast")
    with pytest.raises(Conflict, match=r"takes the messages of 23 queues \(.* and 3 more\): drain the cell"):
        bench.deployment.cells.set_state("fast", "read_only")
