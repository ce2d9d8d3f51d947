"""Opens each adapter for the tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from hourwheel.adapters.dynamodb import DynamoStore, client, create_tables
from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.adapters.s3 import S3Blobs
from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.ports import Blobs, Store

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
    """Every other call is made by the other process: what one writes the other must see."""

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
    """Every call fails at first, in turn without ever having been seen, and before it had its effect."""
    spoilt_client = open_dynamodb(request.getfixturevalue("ministack_endpoint"))
    faults = cycle((wire.throttled, wire.passed, wire.failed_before_effect, wire.passed, wire.not_connected))
    spoilt_client.meta.events.register_first("before-send.dynamodb", lambda request, **_: next(faults)(request))
    # Threads share the clock, so each one's pauses spend the budget of all.
    yield RetryingStore(DynamoStore(spoilt_client, prefix=PREFIX), InstantClock(), SteadyIds(), budget_seconds=86_400)
    spoilt_client.close()


@contextmanager
def memory_blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield MemoryBlobs()


@contextmanager
def file_blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield FileBlobs(request.getfixturevalue("tmp_path") / "segments")


@contextmanager
def s3_blobs(request: pytest.FixtureRequest) -> Iterator[Blobs]:
    yield S3Blobs(lambda: request.getfixturevalue("s3_client"), BUCKET, prefix=f"run-{next(_names)}/")


STORES = {
    "memory": memory_store,
    "sqlite": sqlite_store,
    "sqlite in two processes": sqlite_store_in_two_processes,
    "dynamodb on ministack": dynamodb_on_ministack,
    "dynamodb on moto": dynamodb_on_moto,
    "dynamodb asked again": dynamodb_asked_again,
}
# moto loses adds under threads: it serves calls one at a time only.
STORES_FOR_THREADS = {name: opened for name, opened in STORES.items() if name != "dynamodb on moto"}
TRANSACTIONAL_STORES = {name: STORES[name] for name in ("memory", "sqlite")}
BLOBS = {"memory": memory_blobs, "files": file_blobs, "s3 on ministack": s3_blobs}


def open_dynamodb(endpoint: str) -> Any:
    return client(region="us-east-1", endpoint_url=endpoint)


def open_s3(endpoint: str) -> Any:
    return boto3.client("s3", region_name="us-east-1", endpoint_url=endpoint)
