"""Ordered groups on each store: a process that knows nothing finds the parked and the failed messages."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, RetryLater
from hourwheel.ordered import snapshots
from hourwheel.ports.storage import Store, Table
from tests.support import Bench, CallByCall


@pytest.fixture
def subject(partition: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in partition)[:90]


def bodies(pulls: list[Pull]) -> list[str | None]:
    return [message.body for pull in pulls for message in pull.messages]


@pytest.mark.parametrize("pages", ["usual", "small"], indirect=True)
@pytest.mark.usefixtures("pages")
def test_each_key_is_served_in_order_by_processes_that_know_nothing_of_each_other(store: Store, subject: str) -> None:
    # A store in another process takes no functions: its calls come one by one.
    bench = Bench(store=store if isinstance(store, SqliteStore | MemoryStore) else CallByCall(store))
    bench.deployment.groups.put(subject, "ledger", ordered=True)
    names = ["a1", "b1", "a2", "c1", "a3", "b2"]
    bench.deployment.produce(subject, [NewMessage(body=name, key=name[0]) for name in names])
    where = {"subject": subject, "group": "ledger"}
    first = bench.pull(1, **where)
    assert bodies(first) == ["a1"]
    bench.deployment = bench.another_process()
    second = bench.pull(1, **where)
    assert bodies(second) == ["b1"]
    bench.deployment = bench.another_process()
    third = bench.pull(**where)
    assert bodies(third) == ["c1"]
    bench.settle(first[0], retry=[RetryLater(index=0, delay="10s")], **where)
    bench.settle(second[0], **where)
    bench.settle(third[0], **where)
    bench.deployment = bench.another_process()
    assert bodies(bench.pull(**where)) == ["b2"]
    lag = bench.deployment.groups.lag(subject, "ledger")
    assert (lag.waiting, lag.backing_off) == (2, 1)
    bench.clock.pass_time(10)
    bench.deployment.sweeper.sweep()
    bench.deployment = bench.another_process()
    last = bench.pull(**where)
    assert [(message.body, message.attempt) for pull in last for message in pull.messages] == [
        ("a1", 2),
        ("a2", 1),
        ("a3", 1),
    ]
    bench.deployment.subjects.delete(subject)


def test_a_process_that_knows_nothing_begins_from_a_snapshot_of_several_pages(
    store: Store, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PAGE_BYTES", 100)
    monkeypatch.setattr(snapshots, "_PIECE_BLOCKS", 1)
    bench = Bench(store=store if isinstance(store, SqliteStore | MemoryStore) else CallByCall(store))
    bench.deployment.groups.put(subject, "ledger", ordered=True)
    names = [f"{key}{number}" for number in range(60) for key in "ab"]
    bench.deployment.produce(subject, [NewMessage(body=name, key=name[0]) for name in names])
    where = {"subject": subject, "group": "ledger"}
    for _ in range(3):
        # Parks what lies behind one message of each key, and saves a snapshot in place of the one before.
        for _ in range(3):
            bench.pull(1, **where)
        bench.clock.pass_time(70)
        bench.deployment.sweeper.sweep()
    pages = f"parked/ledger~1@{subject}~1/0"
    assert len(store.scan(Table.META, pages, limit=100)) > 1
    bench.deployment = bench.another_process()
    served: list[str | None] = []
    while pulls := bench.pull(50, **where):
        served += bodies(pulls)
        for pull in pulls:
            bench.settle(pull, **where)
    for key in "ab":
        ours = [body for body in served if body is not None and body[0] == key]
        assert ours == [name for name in names if name[0] == key]
    bench.deployment.subjects.delete(subject)
    assert store.scan(Table.META, pages, limit=1) == []
