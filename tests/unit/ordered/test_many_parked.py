"""A failing key holds back itself only, whatever number of messages waits behind it. From a number of held keys on, and
from a far higher number of parked messages on, the queue waits and says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.errors import Throttled
from hourwheel.logs.index_sets import pack_indexes
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.lag import HeldKeys
from hourwheel.model.log_names import records_of
from hourwheel.model.messages import NewMessage
from hourwheel.ordered import key_state_cache, parked_messages, snapshots
from hourwheel.ordered.snapshots import PAGE_BYTES, Snapshots
from hourwheel.ports.storage import MAX_VALUE_BYTES, Key, Table
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.ordered_rows import LastFailure, Parked, ParkedKey, Snapshot, SnapshotRow
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position
from tests.support import AT_ONCE, Bench, CallByCall

_HOT = 12_500
_KEYS = [f"key-{number}" for number in range(50)]


@pytest.fixture(params=["memory", "call by call", "sqlite"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "sqlite":
        store = SqliteStore(tmp_path / "cell.db")
        yield Bench(store)
        store.close()
    else:
        yield Bench(MemoryStore() if request.param == "memory" else CallByCall(MemoryStore()))


def with_group(bench: Bench, **settings: Any) -> None:
    bench.deployment.groups.put("orders", "billing", ordered=True, **{"retry": AT_ONCE, **settings})


def send(bench: Bench, messages: list[tuple[str, str]]) -> None:
    """Sends messages, each given by its key and its body."""
    for start in range(0, len(messages), 500):
        bench.deployment.produce(
            "orders", [NewMessage(body=body, key=key) for key, body in messages[start : start + 500]]
        )


def held(bench: Bench) -> HeldKeys:
    held = bench.deployment.groups.lag("orders", "billing").held
    assert isinstance(held, HeldKeys)
    return held


def queue_log(bench: Bench) -> PullLog:
    subject = bench.deployment.subjects.get("orders")
    return pull_logs(bench.deployment.context, subject, bench.deployment.registry.group(subject, "billing"))[1]


def served(bench: Bench) -> list[str]:
    """Takes and acknowledges all messages whose turn it is, and returns their bodies in the order of the pulls."""
    bodies: list[str] = []
    while pulls := bench.pull(1_000):
        for pull in pulls:
            bodies += [message.body or "" for message in pull.messages]
            bench.settle(pull)
    return bodies


def test_a_key_with_12500_messages_behind_its_failing_one_holds_back_no_other_key(bench: Bench) -> None:
    with_group(bench, max_attempts=1, when_dead="stop")
    send(bench, [("hot", "0")])
    (first,) = bench.pull(1)
    bench.settle(first, retry=[0])
    others: list[str] = []
    for number in range(1, _HOT + 1, 250):
        send(bench, [("hot", str(hot)) for hot in range(number, number + 250)])
        send(bench, [(key, f"{key} {number}") for key in _KEYS])
        others += served(bench)
    assert others == [f"{key} {number}" for number in range(1, _HOT + 1, 250) for key in _KEYS]
    assert (held(bench).keys, held(bench).parked, held(bench).full) == (1, _HOT + 1, [])
    assert held(bench).first[0].behind == _HOT
    # A process that knows nothing begins from the snapshot.
    bench.deployment = bench.another_process()
    send(bench, [(key, f"{key} last") for key in _KEYS])
    assert served(bench) == [f"{key} last" for key in _KEYS]
    assert held(bench).first[0].behind == _HOT
    bench.deployment.groups.decide("orders", "billing", frozenset({"hot"}), "retry")
    assert served(bench) == [str(number) for number in range(_HOT + 1)]
    assert (held(bench).keys, held(bench).parked) == (0, 0)


def test_a_backlog_of_a_key_is_served_in_order_beside_the_other_keys(bench: Bench) -> None:
    with_group(bench, retry=RetryPolicy(first_seconds=60))
    send(bench, [("hot", str(number)) for number in range(700)])
    (first,) = bench.pull(1)
    bench.settle(first, retry=[0])
    send(bench, [(key, key) for key in _KEYS])
    assert served(bench) == _KEYS
    bench.clock.pass_time(60)
    bench.deployment = bench.another_process()
    (pull,) = bench.pull(250)
    assert [message.body for message in pull.messages] == [str(number) for number in range(250)]
    # The one that fails goes back to its place, and those behind it with it.
    bench.settle(pull, retry=[100])
    bench.clock.pass_time(60)
    assert served(bench) == [str(number) for number in range(100, 700)]


def test_a_message_that_expires_amid_a_backlog_brings_none_behind_it_twice(bench: Bench) -> None:
    bench.deployment.subjects.put("orders")
    with_group(bench, max_attempts=1, when_dead="stop")
    send(bench, [("hot", "0")])
    (first,) = bench.pull(1)
    bench.settle(first, retry=[0])
    for bodies, retention in (range(1, 6), 86_400), (range(6, 7), 60), (range(7, 60), 86_400), (range(60, 61), 60):
        bench.deployment.subjects.put("orders", retention_seconds=retention)
        bench.clock.pass_time(5)
        send(bench, [("hot", str(number)) for number in bodies])
    bench.deployment.subjects.put("orders", retention_seconds=86_400)
    bench.clock.pass_time(5)
    send(bench, [("hot", str(number)) for number in range(61, 100)] + [("cold", "cold")])
    assert served(bench) == ["cold"]
    bench.clock.pass_time(60)
    bench.deployment.groups.decide("orders", "billing", frozenset({"hot"}), "retry")
    assert served(bench) == [str(number) for number in range(100) if number not in (6, 60)]
    assert (held(bench).keys, held(bench).parked) == (0, 0)


def test_the_oldest_message_is_known_after_the_first_ones_of_its_key_have_expired(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=3_600)
    with_group(bench, max_attempts=1, when_dead="stop")
    send(bench, [("hot", "0")])
    (first,) = bench.pull(1)
    bench.settle(first, retry=[0])
    send(bench, [*[("hot", "expires")] * 60, ("cold", "cold")])
    assert served(bench) == ["cold"]
    bench.clock.pass_time(1_800)
    sent_ms = bench.clock.now_ms()
    send(bench, [*[("hot", "stays")] * 60, ("cold", "cold")])
    assert served(bench) == ["cold"]
    bench.clock.pass_time(2_000)
    bench.deployment.sweeper.sweep()
    log = queue_log(bench)
    counts = bench.deployment.key_states.current(log).counts(bench.clock.now_ms(), log.source.trimmed())
    oldest = log.source.get(counts.oldest_row or 0)
    assert (counts.waiting, oldest and oldest.at_ms) == (60, sent_ms)


def test_from_a_number_of_held_keys_on_the_queue_waits_and_says_so(bench: Bench) -> None:
    with_group(bench, max_held=3, retry=RetryPolicy(first_seconds=60))
    for key in "abc":
        send(bench, [(key, f"{key}1")])
        assert held(bench).full == []
        (pull,) = bench.pull(1)
        bench.settle(pull, retry=[0])
    send(bench, [("d", "d1"), ("a", "a2")])
    assert bench.pull(10) == []
    assert (held(bench).keys, held(bench).parked, held(bench).full, held(bench).full_of_messages) == (3, 3, [0], [])
    bench.clock.pass_time(60)
    assert served(bench) == ["a1", "b1", "c1", "d1", "a2"]
    assert held(bench).full == []


def test_one_held_key_fills_no_queue_whatever_waits_behind_it(bench: Bench) -> None:
    with_group(bench, max_held=2, retry=RetryPolicy(first_seconds=60))
    send(bench, [("a", "a1"), *[("a", "later")] * 20, ("b", "b1")])
    (pull,) = bench.pull(1)
    bench.settle(pull, retry=[0])
    assert served(bench) == ["b1"]
    assert (held(bench).keys, held(bench).parked, held(bench).full) == (1, 21, [])


def test_keys_that_fail_without_another_message_of_theirs_fill_the_queue_as_well(bench: Bench) -> None:
    with_group(bench, max_held=100, retry=RetryPolicy(first_seconds=3_600))
    send(bench, [(f"key-{number}", str(number)) for number in range(500)])
    while pulls := bench.pull(20):
        for pull in pulls:
            bench.settle(pull, retry=list(range(len(pull.messages))))
    assert (held(bench).keys, held(bench).full) == (100, [0])


def test_from_a_far_higher_number_of_parked_messages_on_the_queue_waits_and_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_messages, "MAX_PARKED", 10)
    with_group(bench, retry=RetryPolicy(first_seconds=60))
    send(bench, [("a", f"a{number}") for number in range(20)])
    (pull,) = bench.pull(1)
    bench.settle(pull, retry=[0])
    send(bench, [("b", "b1")])
    assert bench.pull(10) == []
    assert (held(bench).keys, held(bench).parked, held(bench).full, held(bench).full_of_messages) == (1, 10, [], [0])
    bench.clock.pass_time(60)
    assert served(bench) == [*[f"a{number}" for number in range(20)], "b1"]
    assert held(bench).full_of_messages == []


def test_a_snapshot_that_cannot_be_saved_is_not_tried_by_each_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot may have megabytes: tried by each claim, it would keep a throttled store throttled."""
    bench, tries = Bench(CallByCall(MemoryStore())), list[int]()

    def fails(_: Snapshots, __: object, snapshot: Snapshot) -> bool:
        tries.append(snapshot.row_no)
        raise Throttled("the store is busy")

    monkeypatch.setattr(key_state_cache, "_SNAPSHOT_ROWS", 3)
    monkeypatch.setattr(Snapshots, "save", fails)
    with_group(bench)
    for number in range(9):
        send(bench, [(f"key-{number}", str(number))])
        assert served(bench) == [str(number)]
    assert tries == [1, 4, 7]


PAGES = "parked/billing~1@orders~1/0"


def large(row_no: int, at_ms: int) -> Snapshot:
    """Returns a snapshot whose parked messages just fit into a record, and the half-settled pulls do so beside the
    reasons of the stopped keys."""
    keys = tuple(ParkedKey(number.to_bytes(6), (Parked(70_000 + number, 7),)) for number in range(13_500))
    rows = tuple(SnapshotRow(number, pack_indexes(range(0, 1_000, 2))) for number in range(600))
    stops = tuple((number.to_bytes(6), LastFailure(number, 0, False, "x" * 1_000)) for number in range(31))
    return Snapshot(row_no, Position(90_000), 90_000, keys, rows, at_ms, stops)


def test_a_snapshot_whose_open_rows_leave_no_room_for_the_parked_messages_has_pages(bench: Bench) -> None:
    with_group(bench)
    send(bench, [("a", "a")])
    saved, snapshot = Snapshots.of(queue_log(bench)), large(700, bench.clock.now_ms())
    sizes = [len(msgspec.msgpack.encode(part)) for part in (snapshot.parked, snapshot.open, snapshot)]
    assert max(sizes[:2]) < PAGE_BYTES < MAX_VALUE_BYTES < sizes[2]
    assert saved.save(None, snapshot)
    assert saved.load() == snapshot


def test_a_snapshot_that_is_refused_leaves_no_page(bench: Bench) -> None:
    with_group(bench)
    send(bench, [("a", "a")])
    saved, now_ms = Snapshots.of(queue_log(bench)), bench.clock.now_ms()
    assert saved.save(None, large(700, now_ms))
    stored = [name for name, _ in bench.store.scan(Table.META, PAGES, limit=100)]
    assert not saved.save(None, large(800, now_ms))
    assert [name for name, _ in bench.store.scan(Table.META, PAGES, limit=100)] == stored
    assert saved.load() == large(700, now_ms)


def test_a_deleted_group_leaves_no_page_of_its_snapshot(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "PAGE_BYTES", 100)
    monkeypatch.setattr(key_state_cache, "_SNAPSHOT_ROWS", 1)
    with_group(bench, retry=RetryPolicy(first_seconds=3_600))
    for number in range(5):
        send(bench, [(f"key-{each}", "-") for each in range(20 * number, 20 * number + 20)])
        for pull in bench.pull(100):
            bench.settle(pull, retry=list(range(len(pull.messages))))
    stored = [name for name, _ in bench.store.scan(Table.META, PAGES, limit=100)]
    # Those of the last snapshot alone.
    assert len({name.rsplit("-", 1)[0] for name in stored}) == 1
    assert len(stored) > 5
    bench.deployment.groups.delete("orders", "billing")
    assert bench.store.scan(Table.META, PAGES, limit=1) == []
    assert bench.store.get(Key(Table.META, records_of("billing~1@orders~1/0"), "parked")) is None
