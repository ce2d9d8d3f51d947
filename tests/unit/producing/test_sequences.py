"""A sender numbers its batches under one key: its last batch may be repeated long after, and an earlier one may not."""

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import CellUnavailable, Conflict
from hourwheel.model.fields import IDEMPOTENCY_MS
from hourwheel.model.messages import NewMessage, SendResult
from hourwheel.ports.storage import CellStorage
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import AT_ONCE, Bench, CallByCall

DAY = 86_400


def send(bench: Bench, body: str, sequence: int | None, key: str = "sender") -> list[SendResult]:
    return bench.deployment.produce("orders", [NewMessage(body=body)], IdempotencyKey(key, body.encode(), sequence))


def test_the_last_batch_is_stored_once_however_late_it_is_repeated(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=30 * DAY)
    first = send(bench, "a", 1)
    bench.clock.pass_time(20 * DAY)
    assert send(bench, "a", 1) == first
    assert bench.bodies() == ["a"]


def test_each_higher_number_is_a_new_batch_at_once(bench: Bench) -> None:
    for sequence, body in [(1, "a"), (2, "b"), (7, "c"), (7, "c")]:
        send(bench, body, sequence)
    assert bench.bodies() == ["a", "b", "c"]


def test_an_earlier_batch_that_arrives_late_is_refused(bench: Bench) -> None:
    send(bench, "a", 1)
    send(bench, "b", 2)
    bench.clock.pass_time(2 * IDEMPOTENCY_MS / 1_000)
    with pytest.raises(Conflict, match="sequence 2 came before") as refused:
        send(bench, "a", 1)
    assert (refused.value.slug, refused.value.field) == ("sequence-passed", "sequence")
    assert bench.bodies() == ["a", "b"]


@pytest.mark.parametrize("sequence", [1, None])
def test_the_number_of_another_batch_is_refused(bench: Bench, sequence: int | None) -> None:
    send(bench, "a", 1)
    with pytest.raises(Conflict, match="other content"):
        send(bench, "b", sequence)
    assert bench.bodies() == ["a"]


def test_a_key_without_numbers_takes_none_while_it_is_remembered(bench: Bench) -> None:
    send(bench, "a", None)
    with pytest.raises(Conflict, match="other content"):
        send(bench, "b", 1)
    bench.clock.pass_time(IDEMPOTENCY_MS / 1_000 + 1)
    send(bench, "b", 1)
    assert bench.bodies() == ["a", "b"]


def test_a_new_batch_of_a_sender_is_refused_by_a_read_only_subject_and_its_last_one_is_answered(bench: Bench) -> None:
    first = send(bench, "a", 1)
    bench.deployment.subjects.put("orders", read_only=True)
    assert send(bench, "a", 1) == first
    with pytest.raises(Conflict, match="read-only"):
        send(bench, "b", 2)


def test_a_new_batch_of_a_sender_makes_a_subject_that_was_deleted_anew(bench: Bench) -> None:
    send(bench, "a", 1)
    bench.deployment.subjects.delete("orders")
    with pytest.raises(Conflict, match="deleted since"):
        send(bench, "a", 1)
    send(bench, "b", 2)
    assert bench.bodies() == ["b"]


@pytest.mark.parametrize("atomic", [True, False])
def test_a_late_repeat_of_a_batch_whose_row_is_gone_is_undecided_unless_record_and_row_are_one(atomic: bool) -> None:
    """Without transactions the record of a batch is stored before its rows: a process that dies between leaves a hole,
    which a reader fills. Once the filler has expired too, nothing tells it from the batch."""
    store = MemoryStore()
    bench = Bench(store if atomic else CallByCall(store), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    first = send(bench, "a", 1)
    bench.clock.pass_time(DAY)
    bench.deployment.context.log("orders~1/0").trim(1)
    assert bench.bodies() == []
    if atomic:
        assert send(bench, "a", 1) == first
    else:
        with pytest.raises(Conflict, match="too long ago to know whether it was stored") as refused:
            send(bench, "a", 1)
        assert refused.value.slug == "sequence-undecided"
    send(bench, "b", 2)
    assert bench.bodies() == ["b"]


@pytest.mark.parametrize("named", ["the server still knows the cell", "the server knows it no longer"])
@pytest.mark.parametrize("atomic", [True, False])
def test_a_late_repeat_of_a_batch_whose_cell_was_removed_is_undecided(named: str, atomic: bool) -> None:
    """The record of the batch is in the home cell, its row in the other one: no transaction has stored both."""
    store = MemoryStore() if atomic else CallByCall(MemoryStore())
    cells = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", retention_seconds=3_600)
    bench.deployment.routes.move("orders", 0, "fast")
    first = send(bench, "a", 1)
    assert bench.bodies() == ["a"]
    bench.deployment.cells.drain("fast")
    for _ in range(10):
        bench.clock.pass_time(DAY)
        bench.deployment.sweeper.sweep()
    assert send(bench, "b", 1, key="other") != first
    bench.deployment.cells.remove("fast")
    if named != "the server still knows the cell":
        bench.cells.pop("fast")
        bench.cells["spare"] = CellStorage(MemoryStore(), MemoryBlobs())
    bench.deployment = bench.another_process()
    with pytest.raises(Conflict, match="too long ago to know whether it was stored") as refused:
        send(bench, "a", 1)
    assert refused.value.slug == "sequence-undecided"
    send(bench, "a", 2)
    assert bench.bodies() == ["b", "a"]


def test_a_late_repeat_of_a_batch_is_answered_while_its_cell_is_there_and_waits_while_it_does_not_answer() -> None:
    cells = {"fast": CellStorage(CallByCall(MemoryStore()), MemoryBlobs())}
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", retention_seconds=20 * DAY)
    bench.deployment.routes.move("orders", 0, "fast")
    first = send(bench, "a", 1)
    bench.clock.pass_time(DAY)
    assert send(bench, "a", 1) == first
    bench.deployment.cells.drain("fast")
    bench.deployment.cells.set_state("fast", "offline")
    with pytest.raises(CellUnavailable):
        send(bench, "a", 1)
    bench.deployment.cells.set_state("fast", "normal")
    assert send(bench, "a", 1) == first
    assert bench.bodies() == ["a"]


def test_a_late_repeat_stores_nothing_in_an_empty_cell_that_has_the_name_of_a_removed_one() -> None:
    cells = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", retention_seconds=3_600)
    bench.deployment.routes.move("orders", 0, "fast")
    send(bench, "a", 1)
    bench.deployment.cells.drain("fast")
    for _ in range(10):
        bench.clock.pass_time(DAY)
        bench.deployment.sweeper.sweep()
    bench.deployment.cells.remove("fast")
    bench.cells["fast"] = CellStorage(MemoryStore(), MemoryBlobs())
    bench.deployment = bench.another_process()
    bench.deployment.cells.add("fast")
    with pytest.raises(Conflict, match="too long ago"):
        send(bench, "a", 1)
