"""Runs schedules of the real library on real adapters, and compares each answer with that of the simulated store."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Any
from unittest.mock import patch

import pytest

from hourwheel.adapters.aws.dynamodb import DynamoStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.adapters.sqlite.writer import SqliteWriter
from hourwheel.ports.storage import Key, Record, Refused, Store
from tests.simulation.draws import draw, on_engine
from tests.simulation.schedule import run_plan, simulate
from tests.simulation.world import Violation

SEEDS = {"sqlite": (0, 2, 3, 4, 5, 6), "dynamodb": (2, 3, 4)}
"""A few seeds, as a call takes milliseconds; ``python -m tests.simulation.run --store dynamodb --seeds 0:50`` runs
more."""

VOLUME_SEEDS = {"sqlite": range(7, 60), "dynamodb": range(5, 15)}

DELETING = 8
"""The number of plans that delete subjects or groups, and so seal their logs: most others never add to a sealed one."""


def _deleting() -> Iterator[int]:
    return islice((seed for seed in count() if {"delete-subject", "delete-group"} & {*draw(seed).moves}), DELETING)


@pytest.mark.parametrize("seed", [*_deleting()])
def test_no_schedule_with_deletions_on_sqlite_breaks_an_invariant(seed: int) -> None:
    violation = simulate(seed, "sqlite").violation
    assert violation is None, f"{violation}; python -m tests.simulation.run --store sqlite --seeds {seed}"


@pytest.mark.parametrize(("store", "seed"), [(store, seed) for store, seeds in SEEDS.items() for seed in seeds])
def test_no_schedule_on_a_real_store_breaks_an_invariant(store: str, seed: int) -> None:
    violation = simulate(seed, store).violation
    assert violation is None, f"{violation}; python -m tests.simulation.run --store {store} --seeds {seed}"


@pytest.mark.volume
@pytest.mark.parametrize("store", VOLUME_SEEDS)
def test_no_schedule_of_many_on_a_real_store_breaks_an_invariant(store: str) -> None:
    for seed in VOLUME_SEEDS[store]:
        violation = simulate(seed, store).violation
        assert violation is None, f"{violation}; python -m tests.simulation.run --store {store} --seeds {seed}"


@pytest.mark.parametrize(("store", "seed"), [("sqlite", 3), ("dynamodb", 4)])
def test_a_run_takes_the_same_course_with_a_real_store_beside_the_simulated_one(store: str, seed: int) -> None:
    plan = on_engine(draw(seed), store)
    assert run_plan(plan).digest() == run_plan(replace(plan, engine="")).digest()


@contextmanager
def what_a_transaction_did_stays_when_its_process_ends() -> Iterator[None]:
    def roll_back(self: SqliteWriter) -> None:
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")

    with patch.object(SqliteWriter, "roll_back", roll_back):
        yield


@contextmanager
def the_calls_of_a_transaction_are_committed_one_by_one() -> Iterator[None]:
    def transact(self: SqliteStore, work: Callable[[Store], Any]) -> Any:
        return work(self._writer.session)

    with patch.object(SqliteStore, "transact", transact):
        yield


@contextmanager
def an_item_is_replaced_whatever_its_token() -> Iterator[None]:
    def put(self: DynamoStore, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if expect is not None:
            current = self.get(key)
            expect = current.token if current else None
        return real(self, key, record, expect=expect)

    real = DynamoStore.put
    with patch.object(DynamoStore, "put", put):
        yield


BUGS: dict[Callable[[], AbstractContextManager[None]], str] = {
    what_a_transaction_did_stays_when_its_process_ends: "sqlite",
    the_calls_of_a_transaction_are_committed_one_by_one: "sqlite",
    an_item_is_replaced_whatever_its_token: "dynamodb",
}


@pytest.mark.parametrize("bug", BUGS, ids=[bug.__name__ for bug in BUGS])
def test_a_bug_of_an_adapter_is_found_when(bug: Callable[[], AbstractContextManager[None]]) -> None:
    with bug():
        for seed in range(2, 30):
            violation = simulate(seed, BUGS[bug]).violation
            if isinstance(violation, Violation):
                return
            if violation is not None:
                raise violation
    pytest.fail("not found")
