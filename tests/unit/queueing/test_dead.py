"""Dead letters: list, read, redrive, drop."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import NotFound, Rejected
from hourwheel.model import DEAD_RETENTION_MS, Message
from hourwheel.ports import Table
from hourwheel.queueing.dead import DeadId
from tests.support import NOON_MS, Bench, CallByCall


def everything(dead_id: DeadId, died_ms: int) -> bool:
    return True


def five_graves(bench: Bench) -> Bench:
    """Five dead letters: a, b, then a minute later c, d, e."""
    for bodies in ("ab", "cde"):
        bench.send(*bodies)
        (pull,) = bench.pull()
        bench.settle(pull, dead=list(range(len(bodies))))
        bench.clock.pass_time(60)
    return bench


@pytest.fixture
def graves(bench: Bench) -> Bench:
    return five_graves(bench)


def listed(bench: Bench) -> list[Message]:
    return bench.cell.dead("orders", "billing", after=None, limit=100).messages


def test_dead_letters_are_listed_page_by_page_and_read_one_by_one(graves: Bench) -> None:
    first = graves.cell.dead("orders", "billing", after=None, limit=3)
    rest = graves.cell.dead("orders", "billing", after=first.next, limit=3)
    assert [one.body for one in first.messages] == ["a", "b", "c"]
    assert [one.body for one in rest.messages] == ["d", "e"]
    assert rest.next is None
    one = graves.cell.dead_letter("orders", "billing", first.messages[2].dead_id or "")
    assert (one.body, one.reason, one.died_at, one.offset) == ("c", "rejected", "2025-11-20T12:01:00.000Z", 2)


def test_redriven_messages_come_to_their_group_as_new_and_leave_the_list(graves: Bench) -> None:
    assert graves.cell.redrive("orders", "billing", everything) == 5
    assert listed(graves) == []
    assert [(one.body, one.attempt, one.died_at) for one in graves.take()] == [(body, 1, None) for body in "abcde"]
    assert graves.cell.redrive("orders", "billing", everything) == 0


def test_some_are_redriven_and_some_dropped(graves: Bench) -> None:
    ids = {one.body: one.dead_id for one in listed(graves)}
    assert graves.cell.redrive("orders", "billing", lambda dead_id, _: str(dead_id) == ids["d"]) == 1
    assert graves.cell.drop_dead("orders", "billing", lambda _, died_ms: died_ms < NOON_MS + 60_000) == 2
    assert [one.body for one in listed(graves)] == ["c", "e"]
    assert graves.bodies() == ["d"]
    with pytest.raises(NotFound):
        graves.cell.dead_letter("orders", "billing", ids["a"] or "")


def test_a_message_may_die_and_be_redriven_again_and_again(graves: Bench) -> None:
    for _ in range(3):
        graves.cell.redrive("orders", "billing", everything)
        (pull,) = graves.pull()
        graves.settle(pull, dead=[0, 1, 2, 3, 4])
    assert [one.body for one in listed(graves)] == list("abcde")


def test_dead_letters_of_one_group_are_not_seen_by_another(graves: Bench) -> None:
    graves.pull(group="audit")
    assert graves.cell.dead("orders", "audit", after=None, limit=9).messages == []


def test_dead_letters_outlive_the_retention_of_their_subject_by_far(graves: Bench) -> None:
    graves.clock.pass_time(DEAD_RETENTION_MS / 1_000 - 200)
    graves.cell.sweep()
    assert len(listed(graves)) == 5
    graves.clock.pass_time(200)
    graves.cell.sweep()
    assert listed(graves) == []


def test_rows_whose_letters_are_all_gone_are_removed(graves: Bench) -> None:
    graves.cell.drop_dead("orders", "billing", lambda dead_id, _: dead_id.row == 0)
    graves.cell.sweep()
    assert len(graves.store.scan(Table.CONSUME, "orders~1/dead/billing~1", limit=9)) == 1
    assert [one.body for one in listed(graves)] == list("cde")


@pytest.mark.parametrize("dead_id", ["", "1", "1-", "-1", "a-b", "1-1-1", "\u0663-\u0661", "9" * 30 + "-1"])
def test_a_dead_id_that_is_none_is_refused(graves: Bench, dead_id: str) -> None:
    with pytest.raises(Rejected):
        graves.cell.dead_letter("orders", "billing", dead_id)


def test_a_redrive_that_lost_its_store_half_way_is_finished_by_the_sweeper() -> None:
    store = CallByCall(MemoryStore())
    graves = five_graves(Bench(store))

    class Cut(Exception):
        pass

    put, seen = store.put, []

    def cut(key, record, *, expect):
        if key.table is Table.CONSUME and "/retry/" in key.partition:
            seen.append(key)
            raise Cut
        return put(key, record, expect=expect)

    store.put = cut  # type: ignore[method-assign]
    with pytest.raises(Cut):
        graves.cell.redrive("orders", "billing", lambda dead_id, _: dead_id.row == 0)
    del store.put  # type: ignore[attr-defined]
    assert (len(seen), graves.bodies()) == (1, [])
    graves.cell.sweep()
    assert graves.bodies() == ["a", "b"]
    assert [one.body for one in listed(graves)] == list("cde")
