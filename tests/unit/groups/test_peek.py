"""A look at a queue shows its messages in both directions, page by page, and leaves no trace."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import NotFound, Rejected
from hourwheel.groups import peek as peeking
from hourwheel.groups.peek import PeekStart
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import row_key
from hourwheel.model.pages import PeekPage
from hourwheel.wire.answer_size import PULL_BYTES
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pulling.test_damage import NOISE, damage, remove_large_batches

LOG = "orders~1/0"


def peek(
    bench: Bench, offset: int | None = None, at_ms: int | None = None, *, newest: bool = False, limit: int = 100
) -> PeekPage:
    return bench.deployment.messages.peek("orders", 0, PeekStart(offset, at_ms, newest), limit)


def bodies(page: PeekPage) -> str:
    return "".join(str(message.body) for message in page.messages)


def all_pages(bench: Bench, *, limit: int, newest: bool = False) -> list[str]:
    page = peek(bench, newest=newest, limit=limit)
    found = [bodies(page)]
    while page.next is not None:
        page = peek(bench, page.next, newest=newest, limit=limit)
        found.append(bodies(page))
    return found


def test_messages_are_shown_with_their_place_and_without_an_attempt(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=2)
    bench.send("a", key="k")
    (accepted,) = bench.send("b", key="k")
    assert accepted.queue is not None
    page = bench.deployment.messages.peek("orders", accepted.queue, PeekStart(), 100)
    assert [(each.body, each.queue, each.offset, each.attempt) for each in page.messages] == [
        ("a", accepted.queue, 0, 0),
        ("b", accepted.queue, 1, 0),
    ]
    assert (page.damaged, page.next, page.end) == ([], None, 2)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_show_every_message_once_in_both_directions(bench: Bench, limit: int) -> None:
    for batch in ("abc", "d", "ef"):
        bench.send(*batch)
    forwards = all_pages(bench, limit=limit)
    assert "".join(forwards) == "abcdef"
    assert all(len(page) == limit for page in forwards[:-1])
    assert "".join(all_pages(bench, limit=limit, newest=True)) == "fedcba"


def test_a_look_starts_at_an_offset_in_the_middle_of_a_batch(bench: Bench) -> None:
    bench.send(*"abc")
    bench.send(*"de")
    assert bodies(peek(bench, 1)) == "bcde"
    assert bodies(peek(bench, 3, newest=True)) == "dcba"
    assert bodies(peek(bench, 1, newest=True)) == "ba"
    assert (bodies(peek(bench, 5)), bodies(peek(bench, 5, newest=True))) == ("", "edcba")


def test_a_look_starts_at_a_time_and_backwards_before_it(bench: Bench) -> None:
    times = []
    for body in "abc":
        times.append(bench.clock.ms)
        bench.send(body)
        bench.clock.pass_time(10)
    assert bodies(peek(bench, at_ms=times[1])) == "bc"
    assert bodies(peek(bench, at_ms=times[1] + 1)) == "c"
    assert bodies(peek(bench, at_ms=times[1], newest=True)) == "a"
    assert (bodies(peek(bench, at_ms=bench.clock.ms)), bodies(peek(bench, at_ms=times[0], newest=True))) == ("", "")


def test_what_has_expired_is_not_shown_whether_or_not_it_was_removed(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("a")
    bench.clock.pass_time(40)
    bench.send("b")
    bench.clock.pass_time(30)
    assert (bodies(peek(bench)), bodies(peek(bench, newest=True)), bodies(peek(bench, 0))) == ("b", "b", "b")
    bench.deployment.sweeper.sweep()
    assert (bodies(peek(bench)), bodies(peek(bench, newest=True)), bodies(peek(bench, 0))) == ("b", "b", "b")


def test_a_look_is_bounded_where_many_rows_have_expired(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peeking, "_ROWS", 3)
    bench.deployment.subjects.put("orders", retention_seconds=60)
    for body in "abcde":
        bench.send(body)
    bench.clock.pass_time(70)
    bench.send("f")
    first = peek(bench)
    assert (bodies(first), first.next) == ("", 3)
    assert all_pages(bench, limit=10) == ["", "f"]
    assert all_pages(bench, limit=10, newest=True) == ["f", ""]


def test_an_answer_holds_no_more_than_lambda_allows() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE))
    for _ in range(8):
        bench.send("x" * 1_000_000)
    page = peek(bench)
    assert len(page.messages) * 1_000_000 < PULL_BYTES
    assert page.next == len(page.messages)
    assert [len(page) for page in all_pages(bench, limit=10, newest=True)] == [5_000_000, 3_000_000]


def test_damaged_rows_are_shown_as_such_among_their_neighbours() -> None:
    bench = Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, inline_bytes=1_024))
    bench.send("a")
    bench.send(NOISE, NOISE)
    remove_large_batches(bench)
    bench.send("b")
    bench.send("c")
    damage(bench, LOG, 3)
    for page, shown in ((peek(bench), "ab"), (peek(bench, newest=True), "ba")):
        assert bodies(page) == shown
        assert sorted((row.messages, row.offset) for row in page.damaged) == [(0, None), (2, 1)]
        assert all(f"of {LOG}: " in row.reason for row in page.damaged)


def test_a_look_writes_nothing_and_fills_no_hole() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=60))
    bench.send("a")
    log = bench.deployment.context.log(LOG)
    hole: Reservation = log.reserve(1)
    bench.send("b")
    bench.clock.pass_time(10)
    store.calls.clear()
    assert (bodies(peek(bench)), bodies(peek(bench, newest=True))) == ("ab", "ba")
    assert store.writes == []
    assert store.get(row_key(LOG, hole.row_no)) is None


def test_what_does_not_exist_is_refused(bench: Bench) -> None:
    with pytest.raises(NotFound) as unknown:
        peek(bench)
    assert unknown.value.slug == "subject-unknown"
    bench.send("a")
    with pytest.raises(NotFound, match="has 1 queue") as unknown:
        bench.deployment.messages.peek("orders", 1, PeekStart(), 100)
    assert (unknown.value.slug, unknown.value.field) == ("queue-unknown", "queue")
    with pytest.raises(Rejected, match="beyond the queue's end 1"):
        peek(bench, 2)
    assert bench.deployment.groups.page("orders") == ([], None)
