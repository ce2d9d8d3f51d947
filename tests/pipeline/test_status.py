"""The status of archive and lake can be read before anything exists."""

from pathlib import Path

import msgspec
import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.errors import DataVersion
from hourwheel.logs.formats import FORMAT, StoreFormat
from hourwheel.model.messages import Message
from hourwheel_pipeline.jobs.status import status_of
from hourwheel_pipeline.lake.schemas import SCHEMAS
from tests.pipeline.archives import ArchiveBuilder


def test_to_ask_for_the_status_makes_nothing(tmp_path: Path) -> None:
    status = status_of(str(tmp_path / "archive"), str(tmp_path / "lake"))
    assert (status.archive.manifests, status.found_at, status.findings) == (0, None, None)
    assert list(tmp_path.iterdir()) == []


def test_before_the_first_compaction_every_table_is_behind(tmp_path: Path) -> None:
    builder = ArchiveBuilder(FileBlobs(tmp_path / "archive"))
    for at_ms in (1_000, 2_000):
        builder.row("orders~1/0", [Message(body="a")], at_ms)
        builder.commit()
    status = status_of(str(tmp_path / "archive"), str(tmp_path / "lake"))
    assert [(one.table, one.behind, one.quarantined, one.rows) for one in status.tables] == [
        (table, 2, 0, 0) for table in SCHEMAS
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


def test_an_archive_that_only_later_versions_read_is_refused(tmp_path: Path) -> None:
    later = StoreFormat(format=FORMAT + 1, least_reader=FORMAT + 1, written_by="0.2.0")
    FileBlobs(tmp_path / "archive").put(f"format/{FORMAT + 1:04d}", msgspec.json.encode(later))
    with pytest.raises(DataVersion, match=r"^the archive has format 4, of Hourwheel 0\.2\.0"):
        status_of(str(tmp_path / "archive"), str(tmp_path / "lake"))
