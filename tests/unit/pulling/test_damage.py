"""Rows that cannot be read: consumers get the rows around them, maintenance continues, and operators get a report."""

import logging
import random
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.logs.codec import pack
from hourwheel.logs.rows import from_record, to_record
from hourwheel.ports.storage import Key, Record, Store, Table
from hourwheel.pulling import answers
from tests.support import AT_ONCE, Bench, CallByCall

T = TypeVar("T")

NOISE = random.Random(1).randbytes(4_000).hex()


@pytest.fixture
def bench() -> Bench:
    return Bench(CallByCall(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0, inline_bytes=1_024))


def remove_large_batches(bench: Bench) -> dict[str, bytes]:
    kept = {key: bench.blobs.get(key) for key in bench.blobs.list("batches/")}
    for key in kept:
        bench.blobs.delete(key)
    return kept


def damage(bench: Bench, log: str, row: int) -> None:
    """Overwrites a row's record with bytes that are none."""
    key = Key(Table.CONSUME, log, f"{row:016d}")
    record = bench.store.get(key)
    assert record is not None
    bench.store.put(key, Record(b"?", b"d" * 16), expect=record.token)


def replace_payload(bench: Bench, row: int, payload: bytes) -> None:
    """Puts another payload into a row's block of one message, under a right checksum."""
    key = Key(Table.CONSUME, "orders~1/0", f"{row:016d}")
    record = bench.store.get(key)
    assert record is not None
    changed = msgspec.structs.replace(from_record(record), block=pack(payload, 1, 1, 1).data)
    bench.store.put(key, to_record(changed, b"d" * 16, 0), expect=record.token)


def count(bench: Bench, name: str) -> float:
    return sum(value for metric, value in bench.meter.metrics if metric == name)


@pytest.fixture
def damaged(bench: Bench) -> Bench:
    """Returns a bench with two messages whose object is missing, between two good ones."""
    bench.send("good 1")
    bench.send(NOISE, NOISE)
    bench.send("good 2")
    bench.kept = remove_large_batches(bench)
    return bench


def test_a_pull_delivers_what_it_can_read_and_its_indexes_are_those_of_the_answer(
    damaged: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    (pull,) = damaged.pull()
    assert [one.body for one in pull.messages] == ["good 1", "good 2"]
    assert damaged.settle(pull, ack=[0], retry=[1]) == "settled"
    assert [(one.body, one.attempt) for one in damaged.take()] == [("good 2", 2)]
    assert count(damaged, "UnreadableMessages") == 2
    assert "2 messages of row 1 of orders~1/0 cannot be read" in caplog.text
    assert NOISE[:50] not in caplog.text


def test_a_pull_of_nothing_but_unreadable_messages_looks_on_at_once(damaged: Bench) -> None:
    assert [damaged.bodies(1) for _ in range(3)] == [["good 1"], ["good 2"], []]
    assert damaged.deployment.groups.lag("orders", "billing").in_flight == 2


def test_an_unreadable_message_is_read_after_a_seek_once_it_is_repaired(damaged: Bench) -> None:
    damaged.take()
    for key, data in damaged.kept.items():
        damaged.blobs.put(key, data)
    damaged.deployment.seeks().seek("orders", "billing", to="start")
    assert damaged.bodies() == ["good 1", NOISE, NOISE, "good 2"]


@pytest.mark.parametrize(
    "payload",
    [b"\x91\x81\xa4body\xa3\xff\xff\xff", b"\x91\x81\xa1x" + b"\x91" * 100_000, b"\x91\xc1", b"\xdd" + b"\x00\x0f" * 9],
    ids=["no UTF-8", "nested without end", "no type", "no list"],
)
def test_damage_under_a_right_checksum_holds_up_nobody(bench: Bench, payload: bytes) -> None:
    for body in ("good 1", "bad", "good 2"):
        bench.send(body)
    replace_payload(bench, 1, payload)
    (pull,) = bench.pull()
    assert [one.body for one in pull.messages] == ["good 1", "good 2"]
    assert count(bench, "UnreadableMessages") == 1
    assert bench.settle(pull) == "settled"
    assert bench.bodies() == []


def test_a_lease_that_ends_hands_over_what_can_be_read(bench: Bench) -> None:
    bench.send("good 1")
    bench.send(NOISE)
    bench.send("good 2")
    bench.pull(lease=30)
    remove_large_batches(bench)
    bench.clock.pass_time(31)
    assert bench.deployment.sweeper.sweep().ended_leases == 1
    assert [(one.body, one.attempt) for one in bench.take_all()] == [("good 1", 1), ("good 2", 1)]
    assert count(bench, "UnreadableMessages") == 1


def test_a_lease_that_ends_while_messages_are_read_keeps_its_end(
    damaged: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    exclude, other = answers.exclude_unreadable, damaged.another_process()

    def after_the_end(*args: Any) -> Any:
        damaged.clock.pass_time(31)
        other.sweeper.sweep()
        monkeypatch.undo()
        return exclude(*args)

    monkeypatch.setattr(answers, "exclude_unreadable", after_the_end)
    assert damaged.bodies() == [], "nobody has a lease of these messages"
    assert [damaged.bodies() for _ in range(3)] == [["good 1"], ["good 2"], []]


def test_a_settlement_of_messages_that_cannot_be_read_any_more_is_carried_out(bench: Bench) -> None:
    bench.send("good")
    bench.send(NOISE)
    (pull,) = bench.pull()
    remove_large_batches(bench)
    assert bench.settle(pull, dead=[0, 1]) == "settled"
    assert [
        one.body for one in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["good"]


def test_a_store_that_does_not_answer_sets_nothing_aside(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.send(NOISE)

    def get(key: str, **range_: int) -> bytes:
        raise Unavailable("busy")

    with monkeypatch.context() as patch:
        patch.setattr(bench.blobs, "get", get)
        with pytest.raises(Unavailable):
            bench.pull(lease=30)
    bench.clock.pass_time(31)
    assert bench.bodies() == [NOISE]


def test_a_sweep_goes_on_behind_a_damaged_log_and_tells_of_it_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    for subject in ("a", "b"):
        bench.deployment.subjects.put(subject, retention_seconds=60)
        bench.send("old", subject=subject)
    damage(bench, "a~1/0", 0)
    bench.clock.pass_time(61)
    for _ in range(3):
        bench.deployment.sweeper.sweep()
    assert bench.store.scan(Table.CONSUME, "b~1/0", limit=9) == []
    assert (count(bench, "Faults"), caplog.text.count("trimming a~1/0 failed")) == (1, 1)
    assert logging.ERROR in [entry.levelno for entry in caplog.records]


def test_ending_the_leases_of_others_never_fails_a_pull(bench: Bench) -> None:
    bench.send("a", "b")
    bench.pull(1)
    bench.pull(1)
    key = Key(Table.PULL, "billing~1@orders~1/0", f"{0:016d}")
    record = bench.store.get(key)
    assert record is not None
    bench.store.put(key, Record(b"?", b"d" * 16), expect=record.token)
    bench.deployment = bench.another_process()
    bench.send("c")
    assert bench.bodies() == ["c"]
    assert bench.deployment.sweeper.end_busy_leases() == 0
    assert count(bench, "Faults") == 1


def test_dead_letters_that_cannot_be_read_stay_and_do_not_hide_the_others(bench: Bench) -> None:
    for body in ("good 1", NOISE, "good 2"):
        bench.send(body)
        (pull,) = bench.pull()
        bench.settle(pull, dead=[0])
    kept = remove_large_batches(bench)
    assert [
        one.body for one in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == [
        "good 1",
        "good 2",
    ]
    assert bench.deployment.dead_letters("orders", "billing").redrive(lambda position, died_ms: True) == 2
    for key, data in kept.items():
        bench.blobs.put(key, data)
    assert [
        one.body for one in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == [NOISE]


class _Transaction:
    """The store that a transaction hands over, which is of no use after its end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.over = False

    def __getattr__(self, name: str) -> Any:
        assert not self.over, f"{name} after the end of the transaction"
        return getattr(self._store, name)


class _StrictStore(MemoryStore):
    def transact(self, work: Callable[[Any], T]) -> T:
        def run(store: Store) -> T:
            transaction = _Transaction(store)
            try:
                return work(transaction)
            finally:
                transaction.over = True

        return super().transact(run)


def test_what_cannot_be_read_is_taken_out_of_the_claim_by_a_write_of_its_own() -> None:
    bench = Bench(store=_StrictStore(), settings=Settings(retry=AT_ONCE, inline_bytes=1_024))
    bench.send("good")
    bench.send(NOISE)
    remove_large_batches(bench)
    (pull,) = bench.pull()
    assert [one.body for one in pull.messages] == ["good"]
    assert bench.settle(pull) == "settled"
