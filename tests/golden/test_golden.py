"""Every version reads what each release has stored, goes on with it, and answers what the release has told callers."""

import gzip
import json
import shutil
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from botocore.config import Config
from moto import mock_aws

from hourwheel import __version__
from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.dynamodb import DynamoStore, create_tables
from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.archive.rebuild import rebuild
from hourwheel.embedded.checks.check import check
from hourwheel.embedded.directories.directory import archive_of, database, prepare
from hourwheel.ports.storage import Store
from tests.golden.make import GOLDEN, NEWEST, main, stored_forms, told_of
from tests.golden.scene import SETTINGS, continued
from tests.golden.stored import load_objects, load_tables
from tests.support import Bench
from tests.unit.logs.stored_types import stored_types

RELEASES = sorted(path for path in GOLDEN.iterdir() if (path / "told.json").exists())
MOST_BYTES = 200_000
each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


@contextmanager
def memory(_: Path) -> Iterator[Store]:
    yield MemoryStore()


@contextmanager
def sqlite(scratch: Path) -> Iterator[Store]:
    store = SqliteStore(scratch / "store.db")
    yield store
    store.close()


@contextmanager
def dynamodb(_: Path) -> Iterator[Store]:
    with mock_aws():
        client = make_client("dynamodb", Config(), region="eu-west-1", endpoint_url=None)
        create_tables(client, "golden")
        yield DynamoStore(client, prefix="golden")


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def in_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


@each_release
@pytest.mark.parametrize("opened", [memory, sqlite, dynamodb])
def test_a_store_of_a_release_goes_on(release: Path, opened: Any, tmp_path: Path) -> None:
    blobs, archive = MemoryBlobs(), MemoryBlobs()
    load_objects(release / "batches", blobs)
    load_objects(release / "archive", archive)
    with opened(tmp_path) as store:
        load_tables(release, store)
        found = continued(Bench(store=store, blobs=blobs, settings=SETTINGS), told_of(release), archive)
    assert in_json(found) == read(release / "continued.json")


def directory_of(release: Path, data: Path) -> Path:
    """Lays out the data directory of a release."""
    data.mkdir(mode=0o700)
    shutil.copy(release / "directory" / "format", data)
    database(data).write_bytes(gzip.decompress((release / "directory" / "hourwheel.db.gz").read_bytes()))
    load_objects(release / "batches", FileBlobs(data))
    load_objects(release / "archive", FileBlobs(archive_of(data)))
    return data


@each_release
def test_a_data_directory_of_a_release_goes_on(release: Path, tmp_path: Path) -> None:
    data = directory_of(release, tmp_path / "data")
    prepare(data)
    store = SqliteStore(database(data))
    bench = Bench(store=store, blobs=FileBlobs(data), settings=SETTINGS)
    found = continued(bench, told_of(release), FileBlobs(archive_of(data)))
    store.close()
    assert in_json(found) == read(release / "continued.json")
    assert check(data).findings == []


@each_release
def test_a_data_directory_of_a_release_is_sound(release: Path, tmp_path: Path) -> None:
    report = check(directory_of(release, tmp_path / "data"))
    assert report.findings == []
    assert report.messages > 0


@each_release
def test_an_archive_of_a_release_is_rebuilt_from(release: Path) -> None:
    archive = MemoryBlobs()
    load_objects(release / "archive", archive)
    bench = Bench(settings=SETTINGS)
    bench.clock.ms = told_of(release).now_ms
    assert rebuild(bench.deployment.context, archive, gap=1_000).lost_manifests == ()
    taken = {message.body for message in bench.take_all(group="large")}
    assert "tagged" in taken


@each_release
def test_every_type_that_a_release_has_stored_is_read(release: Path) -> None:
    known = {str(kind): kind for kind in stored_types()}
    for name, (text, _) in read(release / "types.json").items():
        msgspec.msgpack.decode(b64decode(text), type=known[name])


@each_release
def test_the_data_of_a_release_are_small(release: Path) -> None:
    assert sum(path.stat().st_size for path in release.rglob("*") if path.is_file()) < MOST_BYTES


def test_a_type_changes_its_bytes_only_with_the_golden_data_of_the_next_version() -> None:
    """After a release a change of a stored type also raises the version. Then python -m tests.golden.make adds the data
    of the next version, and those of the release stay."""
    assert NEWEST.name == __version__
    assert NEWEST in RELEASES, f"python -m tests.golden.make makes the golden data of {__version__}"
    assert stored_forms() == read(NEWEST / "types.json")


def test_the_script_makes_what_it_has_made(tmp_path: Path) -> None:
    folder = tmp_path / __version__
    main(folder)
    assert read(folder / "continued.json") == read(NEWEST / "continued.json")
