"""Dead letters are listed, read, redriven and dropped."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.dead_letters.dead import DeadFilter, DeadLetters, NamedLetters
from hourwheel.dead_letters.dead_rows import dead_id_of
from hourwheel.errors import Filled, NotFound, Rejected
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.messages import Message
from hourwheel.model.pulls import Rejection
from hourwheel.ports.storage import Record, Refused, Store, Table
from hourwheel.pull_log.records import Position
from hourwheel.wire.answer_size import PULL_BYTES
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall

T = TypeVar("T")


def everything(position: Position, died_ms: int) -> bool:
    return True


def five_graves(bench: Bench) -> Bench:
    """Creates five dead letters: a, b, then a minute later c, d, e."""
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
    return bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100).messages


def test_dead_letters_are_listed_page_by_page_and_read_one_by_one(graves: Bench) -> None:
    first = graves.deployment.dead_letters("orders", "billing").page(after=None, limit=3)
    rest = graves.deployment.dead_letters("orders", "billing").page(after=first.next, limit=3)
    assert [one.body for one in first.messages] == ["a", "b", "c"]
    assert [one.body for one in rest.messages] == ["d", "e"]
    assert rest.next is None
    one = graves.deployment.dead_letters("orders", "billing").get(first.messages[2].dead_id or "")
    assert (one.body, one.reason, one.died_at, one.offset) == ("c", "rejected", "2025-11-20T12:01:00.000Z", 2)


def test_dead_letters_are_listed_page_by_page_the_newest_first(graves: Bench) -> None:
    pages, after = [], None
    for _ in range(3):
        page = graves.deployment.dead_letters("orders", "billing").page(after=after, limit=2, newest=True)
        pages.append([one.body for one in page.messages])
        after = page.next
    assert (pages, after) == ([["e", "d"], ["c", "b"], ["a"]], None)


def test_the_newest_of_many_rows_are_found_with_few_reads_and_without_those_that_are_gone() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store=store)
    for number in range(200):
        bench.send(str(number))
        bench.settle(bench.pull()[0], dead=[0])
    gone = {Position(199, 0), Position(197, 0)}
    bench.deployment.dead_letters("orders", "billing").drop(lambda position, died_ms: position in gone)
    store.calls.clear()
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=3, newest=True)
    assert [one.body for one in page.messages] == ["198", "196", "195"]
    assert len(store.calls) < 15
    every, after = [], None
    while True:
        page = bench.deployment.dead_letters("orders", "billing").page(after=after, limit=60, newest=True)
        every += [int(one.body or "") for one in page.messages]
        if (after := page.next) is None:
            break
    assert every == [number for number in range(199, -1, -1) if number not in (197, 199)]


def test_a_cursor_behind_the_end_of_the_log_costs_no_more_reads_than_none() -> None:
    store = CallByCall(MemoryStore())
    graves = five_graves(Bench(store=store))
    store.calls.clear()
    page = graves.deployment.dead_letters("orders", "billing").page(after="20000-0", limit=3, newest=True)
    assert [one.body for one in page.messages] == ["e", "d", "c"]
    assert len(store.calls) < 15


def test_the_newest_dead_letters_of_one_reason_are_found(graves: Bench) -> None:
    graves.send("late")
    graves.settle(graves.pull()[0], dead=[Rejection(index=0, detail="too late")])
    which = DeadFilter("rejected", "too late")
    page = graves.deployment.dead_letters("orders", "billing").page(after=None, limit=2, which=which, newest=True)
    assert ([one.body for one in page.messages], page.next) == (["late"], None)


def test_redriven_messages_come_to_their_group_as_new_and_leave_the_list(graves: Bench) -> None:
    assert graves.deployment.dead_letters("orders", "billing").redrive(everything) == 5
    assert listed(graves) == []
    assert [(one.body, one.attempt, one.died_at) for one in graves.take()] == [(body, 1, None) for body in "abcde"]
    assert graves.deployment.dead_letters("orders", "billing").redrive(everything) == 0


def test_redriven_messages_are_kept_for_as_long_as_new_ones(graves: Bench) -> None:
    """Not only for what was left of the time of the dead letter."""
    graves.clock.pass_time(DEAD_RETENTION_MS / 1_000 - 180)
    assert graves.deployment.dead_letters("orders", "billing").redrive(everything) == 5
    graves.clock.pass_time(3_600)
    graves.deployment.sweeper.sweep()
    assert [one.body for one in graves.take()] == [*"abcde"]


def test_some_are_redriven_and_some_dropped(graves: Bench) -> None:
    ids = {one.body: one.dead_id for one in listed(graves)}
    assert (
        graves.deployment.dead_letters("orders", "billing").redrive(
            lambda position, _: dead_id_of(position) == ids["d"]
        )
        == 1
    )
    assert graves.deployment.dead_letters("orders", "billing").drop(lambda _, died_ms: died_ms < NOON_MS + 60_000) == 2
    assert [one.body for one in listed(graves)] == ["c", "e"]
    assert graves.bodies() == ["d"]
    with pytest.raises(NotFound):
        graves.deployment.dead_letters("orders", "billing").get(ids["a"] or "")


def test_a_message_may_die_and_be_redriven_again_and_again(graves: Bench) -> None:
    for _ in range(3):
        graves.deployment.dead_letters("orders", "billing").redrive(everything)
        (pull,) = graves.pull()
        graves.settle(pull, dead=[0, 1, 2, 3, 4])
    assert [one.body for one in listed(graves)] == list("abcde")


def test_dead_letters_of_one_group_are_not_seen_by_another(graves: Bench) -> None:
    graves.pull(group="audit")
    assert graves.deployment.dead_letters("orders", "audit").page(after=None, limit=9).messages == []


def test_dead_letters_outlive_the_retention_of_their_subject_by_far(graves: Bench) -> None:
    graves.clock.pass_time(DEAD_RETENTION_MS / 1_000 - 200)
    graves.deployment.sweeper.sweep()
    assert len(listed(graves)) == 5
    graves.clock.pass_time(200)
    graves.deployment.sweeper.sweep()
    assert listed(graves) == []


def test_a_dropped_letter_does_not_come_back_when_states_expire(graves: Bench) -> None:
    assert graves.deployment.dead_letters("orders", "billing").drop(lambda position, _: position == Position(0, 0)) == 1
    for hours_left in (25, 1):
        graves.clock.ms = NOON_MS + DEAD_RETENTION_MS - hours_left * 3_600_000
        graves.store.collect(Table.PULL, graves.clock.now_ms())
        assert [letter.body for letter in listed(graves)] == list("bcde")


def test_rows_whose_letters_are_all_gone_are_removed(graves: Bench) -> None:
    graves.deployment.dead_letters("orders", "billing").drop(lambda position, _: position.row_no == 0)
    graves.deployment.sweeper.sweep()
    assert len(graves.store.scan(Table.CONSUME, "orders~1/dead/billing~1", limit=9)) == 1
    assert [one.body for one in listed(graves)] == list("cde")


@pytest.mark.parametrize("dead_id", ["", "1", "1-", "-1", "a-b", "1-1-1", "\u0663-\u0661", "9" * 30 + "-1"])
def test_a_dead_id_that_is_none_is_refused(graves: Bench, dead_id: str) -> None:
    with pytest.raises(Rejected):
        graves.deployment.dead_letters("orders", "billing").get(dead_id)


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

    store.put = cut
    with pytest.raises(Cut):
        graves.deployment.dead_letters("orders", "billing").redrive(lambda position, _: position.row_no == 0)
    del store.put
    assert (len(seen), graves.bodies()) == (1, [])
    graves.deployment.sweeper.sweep()
    assert graves.bodies() == ["a", "b"]
    assert [one.body for one in listed(graves)] == list("cde")


@pytest.mark.parametrize("verb", ["redrive", "drop"])
def test_what_was_done_though_its_answer_was_lost_is_counted(verb: str) -> None:
    store = CallByCall(MemoryStore())
    graves = five_graves(Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0)))
    put, lost = store.put, []

    def forgetful(key, record, *, expect) -> Refused | None:
        if not key.partition.startswith("dead@") or lost:
            return put(key, record, expect=expect)
        lost.append(put(key, record, expect=expect))
        # Another process finishes the record before we ask again.
        dead = DeadLetters(
            graves.deployment.context,
            graves.deployment.subjects.get("orders"),
            graves.deployment.groups.get("orders", "billing"),
        )
        dead.sweep()
        current = store.get(key)
        assert current is not None
        if current == record:
            current = Record(record.value, b"x" * 16, record.expires_ms)
            put(key, current, expect=record.token)
        return Refused(current)

    store.put = forgetful
    assert (
        getattr(graves.deployment.dead_letters("orders", "billing"), verb)(lambda position, _: position.index == 0) == 2
    )
    assert [one.body for one in listed(graves)] == ["b", "d", "e"]


def test_a_page_of_dead_letters_holds_no_more_than_an_answer_may(bench: Bench) -> None:
    for _ in range(7):
        bench.send("x" * 1_000_000)
        (pull,) = bench.pull()
        bench.settle(pull, dead=[0])
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=100)
    rest = bench.deployment.dead_letters("orders", "billing").page(after=page.next, limit=100)
    assert sum(len(one.body or "") for one in page.messages) <= PULL_BYTES
    assert (len(page.messages), len(rest.messages), rest.next) == (5, 2, None)


def test_a_sweep_reads_dead_letters_no_further_than_the_first_that_stays() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    for _ in range(300):
        bench.send("a")
        (pull,) = bench.pull()
        bench.settle(pull, dead=[0])
    dead = DeadLetters(
        bench.deployment.context,
        bench.deployment.subjects.get("orders"),
        bench.deployment.groups.get("orders", "billing"),
    )
    store.calls.clear()
    dead.sweep()
    assert len(store.calls) < 9
    assert dead.count() == 300


def test_a_letter_whose_row_was_let_go_meanwhile_is_not_sent_again() -> None:
    bench = five_graves(Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0)))
    names = bench.deployment.subjects.get("orders"), bench.deployment.groups.get("orders", "billing")

    class Swept(CallByCall):
        """All is sent again and swept between a reader's look at the rows and at what became of them."""

        armed = True

        def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
            if self.armed and table is Table.PULL and partition.startswith("dead@"):
                self.armed = False
                bench.deployment.dead_letters("orders", "billing").redrive(everything)
                bench.deployment.sweeper.sweep()
            return super().scan(table, partition, **how)

    late = Bench(Swept(bench.store), bench.blobs, bench.clock, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    assert DeadLetters(late.deployment.context, *names).redrive(everything) == 0
    assert bench.bodies() == list("abcde")


def test_a_filler_of_the_dead_log_keeps_out_the_slow_writer_of_its_row_for_a_day(bench: Bench) -> None:
    bench.pull()
    log = bench.deployment.context.log("orders~1/dead/billing~1")
    slow = log.reserve(1)
    graves = five_graves(bench)
    assert len(listed(graves)) == 5
    graves.deployment.dead_letters("orders", "billing").drop(everything)
    graves.deployment.sweeper.sweep()
    row = log.get(0)
    assert row is not None
    with pytest.raises(Filled):
        log.put(slow, row, b"t" * 16)
    graves.clock.pass_time(86_400)
    graves.deployment.sweeper.sweep()
    assert log.get(0) is None


class CountsTransactions(MemoryStore):
    """A store that counts its transactions."""

    begun = 0

    def transact(self, work: Callable[[Store], T]) -> T:
        self.begun += 1
        return super().transact(work)


def many_graves(bench: Bench) -> list[Position]:
    """Creates 300 dead letters in as many rows, and returns their positions."""
    for index in range(300):
        bench.send(f"m{index}")
        (pull,) = bench.pull()
        bench.settle(pull, dead=[0])
    return [Position(index) for index in range(300)]


@pytest.mark.parametrize("verb", ["redrive", "drop"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "chosen"])
def test_one_letter_of_many_rows_is_reached_without_a_transaction_for_the_others(verb: str, named: bool) -> None:
    bench = Bench(store := CountsTransactions())
    wanted = frozenset(many_graves(bench)[200:201])
    before = store.begun
    chosen = NamedLetters(wanted) if named else lambda position, _: position in wanted
    assert getattr(bench.deployment.dead_letters("orders", "billing"), verb)(chosen) == 1
    assert store.begun - before < 50
    left = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=1_000).messages
    assert [letter.body for letter in left] == [f"m{index}" for index in range(300) if index != 200]
    if verb == "redrive":
        assert bench.bodies() == ["m200"]


@pytest.mark.parametrize("verb", ["redrive", "drop"])
def test_named_letters_cost_the_reads_of_their_rows(verb: str) -> None:
    bench = Bench(store := CallByCall(MemoryStore()))
    positions = many_graves(bench)
    store.calls.clear()
    assert (
        getattr(bench.deployment.dead_letters("orders", "billing"), verb)(NamedLetters(frozenset(positions[200:201])))
        == 1
    )
    assert len(store.calls) < 25
