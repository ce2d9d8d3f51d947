"""The archiver passes over a cell that is out of reach, says so, and archives the rows of the other cells."""

import logging
from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.archiver import Archived
from hourwheel.context import Settings
from hourwheel.errors import Broken, Throttled
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import CellStorage
from hourwheel.retention.watermarks import archived_ms
from tests.support import AT_ONCE, Bench
from tests.unit.archive.archiving import archiver, run
from tests.unit.archive.reading import contents

LARGE = "".join(chr(0x100 + at * at % 5_000) for at in range(2_000))


@pytest.fixture
def bench() -> Bench:
    cells = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
    settings = Settings(retry=AT_ONCE, archive=True, registry_seconds=0, inline_bytes=1_024)
    bench = Bench(settings=settings, cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.subjects.put("orders", queues=2)
    bench.deployment.routes.move("orders", 1, "fast")
    for body, queue in (("here", 0), ("there", 1)):
        bench.deployment.produce("orders", [NewMessage(body=body, queue=queue)])
    for pull in bench.pull():
        bench.settle(pull)
    return bench


def without_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("transact", "counter", "counters", "get", "scan"):
        monkeypatch.setattr(bench.cells["fast"].store, name, _fail)


def with_a_failing_disk(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Broken("the database failed: disk I/O error")

    for name in ("transact", "counter", "counters", "get", "scan"):
        monkeypatch.setattr(bench.cells["fast"].store, name, fail)


def without_objects(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.deployment.produce("orders", [NewMessage(body=LARGE, queue=1)])
    monkeypatch.setattr(bench.cells["fast"].blobs, "get", _fail)


def not_opened(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = dict(bench.cells)
    monkeypatch.setattr(bench, "cells", {"another": cells["fast"]})


def _fail(*_: object, **__: object) -> None:
    raise Throttled("the disk does not answer")


@pytest.mark.parametrize("fail", [without_disk, with_a_failing_disk, without_objects, not_opened])
def test_the_other_cells_are_archived_and_what_was_passed_over_follows(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fail: Callable[[Bench, pytest.MonkeyPatch], None],
) -> None:
    archive = MemoryBlobs()
    fail(bench, monkeypatch)
    with caplog.at_level(logging.ERROR, logger="hourwheel"):
        report = run(bench, archive)
    found = contents(archive)
    assert found.bodies("orders~1/0") == ["here"]
    assert ("billing~1@orders~1/0", 0) in found.pulls
    assert (report.complete, report.cells_out) == (False, ["fast"])
    assert any("fast:orders~1/1.1" in record.message and "cell fast" in record.message for record in caplog.records)
    assert archived_ms(bench.deployment.context) == 0

    monkeypatch.undo()
    report = run(bench, archive)
    assert (report.complete, report.cells_out) == (True, [])
    found = contents(archive)
    assert found.bodies("fast:orders~1/1.1")[0] == "there"
    assert ("billing~1@fast:orders~1/1.1", 0) in found.pulls
    assert set(found.rows.values()) == {1}


def test_a_fault_of_the_archive_itself_still_ends_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = MemoryBlobs()
    monkeypatch.setattr(archive, "put", _fail)
    with pytest.raises(Throttled):
        archiver(bench, archive).run(bench.clock.now_ms() + 60_000)


def test_without_other_cells_the_report_names_none(bench: Bench) -> None:
    assert Archived().cells_out == []
