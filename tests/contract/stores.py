"""Opens each adapter for the tests."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from hourwheel.adapters.aws.dynamodb import DynamoStore, client, create_tables
from hourwheel.adapters.aws.s3 import S3Blobs
from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.ports.storage import Blobs, Key, Record, Store
from tests.simulation.faults import Faults
from tests.simulation.scenes import PLAN
from tests.simulation.state import State
from tests.simulation.store import SimulatedStore, TransactionalStore
from tests.simulation.world import Process, Verb, World

from . import wire
from .services import SqliteProcess
from .simulated import InstantClock, SteadyIds

PREFIX = "contract"
BUCKET = "contract"
_names = count()


@contextmanager
def memory_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield MemoryStore()


@contextmanager
def sqlite_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    store = SqliteStore(request.getfixturevalue("tmp_path") / "store.db")
    yield store
    store.close()


@contextmanager
def sqlite_store_in_two_processes(request: pytest.FixtureRequest) -> Iterator[Store]:
    path: Path = request.getfixturevalue("tmp_path") / "store.db"
    process: SqliteProcess = request.getfixturevalue("sqlite_process")
    store = SqliteStore(path)
    yield InTurns(store, process, path)
    store.close()
    process.call(path, "close")


class InTurns:
    """A store of which another process makes every second call: each process must see the other's writes."""

    def __init__(self, here: SqliteStore, process: SqliteProcess, path: Path) -> None:
        self._here = here
        self._process = process
        self._path = path
        self._turns = cycle((True, False))

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(self._turns):
                return getattr(self._here, method)(*args, **kwargs)
            return self._process.call(self._path, method, *args, **kwargs)

        return call


@contextmanager
def dynamodb_on_ministack(request: pytest.FixtureRequest) -> Iterator[Store]:
    yield DynamoStore(request.getfixturevalue("dynamodb_client"), prefix=PREFIX)


@contextmanager
def dynamodb_on_moto(request: pytest.FixtureRequest) -> Iterator[Store]:
    moto_client = request.getfixturevalue("moto_client")
    with mock_aws():
        create_tables(moto_client, PREFIX)
        yield DynamoStore(moto_client, prefix=PREFIX)


@contextmanager
def dynamodb_asked_again(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yields a store whose requests fail every second time, by different faults in turn, before they have an effect."""
    spoilt_client = open_dynamodb(request.getfixturevalue("ministack_endpoint"))
    faults = cycle((wire.throttled, wire.passed, wire.failed_before_effect, wire.passed, wire.not_connected))
    spoilt_client.meta.events.register_first("before-send.dynamodb", lambda request, **_: next(faults)(request))
    # Threads share the clock, so the pauses of each count against the budget of all.
    yield RetryingStore(DynamoStore(spoilt_client, prefix=PREFIX), InstantClock(), SteadyIds(), budget_seconds=86_400)
    spoilt_client.close()


@contextmanager
def memory_blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield MemoryBlobs()


@contextmanager
def file_blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield FileBlobs(request.getfixturevalue("tmp_path") / "blobs")


@contextmanager
def s3_blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield S3Blobs(lambda: request.getfixturevalue("s3_client"), BUCKET, prefix=f"run-{next(_names)}/")


@contextmanager
def simulated_store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yields the store of the simulation, whose scans are answered in pieces; no actor writes between them."""
    yield SimulatedStore(_process(Faults(torn=0.5)), State(Nobody(), trims=True))


@contextmanager
def simulated_store_with_transactions(request: pytest.FixtureRequest) -> Iterator[Store]:
    """Yields the store of the simulation, whose transactions sometimes run their work twice."""
    yield TransactionalStore(_process(Faults(rerun=0.5)), State(Nobody(), trims=True))


def _process(faults: Faults) -> Process:
    world = World(replace(PLAN, faults=faults))
    world.limit = sys.maxsize
    return world.process("contract")


class Nobody:
    """A watcher that ignores all changes."""

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        pass

    def removed(self, key: Key, record: Record) -> None:
        pass


STORES = {
    "memory": memory_store,
    "simulated": simulated_store,
    "simulated with transactions": simulated_store_with_transactions,
    "sqlite": sqlite_store,
    "sqlite in two processes": sqlite_store_in_two_processes,
    "dynamodb on ministack": dynamodb_on_ministack,
    "dynamodb on moto": dynamodb_on_moto,
    "dynamodb asked again": dynamodb_asked_again,
}
# moto loses adds under threads: only calls one at a time are safe.
# The simulation knows no threads: its actors take turns.
_ONE_AT_A_TIME = {"dynamodb on moto", "simulated", "simulated with transactions"}
STORES_FOR_THREADS = {name: opened for name, opened in STORES.items() if name not in _ONE_AT_A_TIME}
TRANSACTIONAL_STORES = {name: STORES[name] for name in ("memory", "sqlite", "simulated with transactions")}
BLOBS = {"memory": memory_blobs, "files": file_blobs, "s3 on ministack": s3_blobs}


def open_dynamodb(endpoint: str) -> Any:
    return client(region="us-east-1", endpoint_url=endpoint)


def open_s3(endpoint: str) -> Any:
    return boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
