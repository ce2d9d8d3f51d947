"""Invariant 13: how many writes a call makes, on every store."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from hourwheel.adapters.aws import dynamodb
from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.producing.idempotency import IdempotencyKey
from tests.support import AT_ONCE, Bench, CallByCall, CountedTransactions

PRODUCE = ["add", "put"]


@pytest.fixture(params=["memory", "memory, call by call", "sqlite", "dynamodb"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    settings = Settings(retry=AT_ONCE, registry_seconds=60)
    if request.param == "memory":
        yield Bench(CountedTransactions(MemoryStore()), settings=settings)
    elif request.param == "memory, call by call":
        yield Bench(CallByCall(MemoryStore()), settings=settings)
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "queue.db")
        yield Bench(CountedTransactions(store), settings=settings)
        store.close()
    else:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        with mock_aws():
            client = dynamodb.client(region="us-east-1")
            dynamodb.create_tables(client, prefix="cost")
            yield Bench(CallByCall(dynamodb.DynamoStore(client, prefix="cost")), settings=settings)


def writes(bench: Bench) -> list[str]:
    """Returns the names of the write calls since the last call of this function."""
    store = bench.store
    assert isinstance(store, CallByCall)
    verbs = [verb for verb, _ in store.writes]
    store.calls.clear()
    return verbs


@pytest.fixture
def warm(bench: Bench) -> Bench:
    """Creates the subject and its groups and caches them."""
    for number in range(3):
        bench.deployment.groups.put("orders", f"g{number}")
        bench.pull(group=f"g{number}")
    bench.send("first")
    writes(bench)
    return bench


@pytest.mark.parametrize("count", [1, 10, 1_000])
def test_produce_is_one_add_and_one_put_whatever_the_batch_and_the_number_of_groups(warm: Bench, count: int) -> None:
    warm.send(*["x"] * count)
    assert writes(warm) == PRODUCE


def test_an_idempotency_key_costs_one_put_more(warm: Bench) -> None:
    warm.deployment.produce("orders", [NewMessage(body="x")], IdempotencyKey("k", b"d"))
    assert writes(warm) == ["add", "put", "put"]


def test_pull_is_one_put_whatever_the_backlog(warm: Bench) -> None:
    for _ in range(20):
        warm.send("x", "y")
    writes(warm)
    assert len(warm.take(30, group="g0")) == 30
    assert writes(warm) == ["put"]


def test_an_empty_pull_writes_nothing(warm: Bench) -> None:
    warm.take(group="g0")
    writes(warm)
    assert warm.pull(group="g0") == []
    assert writes(warm) == []


def test_settling_and_extending_are_one_put_each(warm: Bench) -> None:
    (pull,) = warm.pull(group="g0")
    writes(warm)
    assert warm.settle(pull, group="g0", extend_seconds=60) == "extended"
    assert writes(warm) == ["put"]
    # The receipt shows the row as it was claimed: the first try is refused, with the current row, and counts too.
    assert warm.settle(pull, group="g0") == "settled"
    assert writes(warm) == ["put", "put"]
    (pull,) = warm.pull(group="g1")
    writes(warm)
    assert warm.settle(pull, group="g1") == "settled"
    assert writes(warm) == ["put"]


def test_a_pull_that_settles_the_one_before_is_two_puts(warm: Bench) -> None:
    (pull,) = warm.pull(group="g0")
    warm.send("x")
    writes(warm)
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=pull.receipt)])
    assert len(warm.deployment.pull("orders", "g0", request).pulls) == 1
    assert writes(warm) == ["put", "put"]


def test_a_retry_costs_a_hand_over(warm: Bench) -> None:
    (pull,) = warm.pull(group="g0")
    writes(warm)
    assert warm.settle(pull, group="g0", retry=[0]) == "settled"
    assert writes(warm) == ["add", "put", "put", "put"]
