"""Each command that inspects an archive reports, without Spark, that the archive is incomplete."""

from pathlib import Path

import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.errors import Corrupt
from hourwheel.model.messages import Message
from hourwheel.retention.manifests import OtherFormat, manifest_key
from hourwheel_pipeline.archive_rows.reading import manifests_from
from hourwheel_pipeline.jobs.compact_steps import new_links
from hourwheel_pipeline.jobs.status import Status, status_of
from hourwheel_pipeline.judging.integrity import inspect
from hourwheel_pipeline.lake.table_progress import TableProgress
from hourwheel_pipeline.outcomes import report_status
from hourwheel_pipeline.runs import exits
from tests.pipeline.archives import ArchiveBuilder


def archived(root: Path, manifests: int = 4) -> FileBlobs:
    """Returns an archive with a segment in each manifest."""
    archive = FileBlobs(root / "archive")
    builder = ArchiveBuilder(archive)
    for at_ms in range(1_000, 1_000 * (manifests + 1), 1_000):
        builder.row("orders~1/0", [Message(body="a")], at_ms)
        builder.commit()
    return archive


def segment_of(archive: FileBlobs, number: int) -> str:
    (manifest, *_) = manifests_from(archive, number)
    (segment,) = manifest.segments
    return segment.key


def kinds(root: Path, **how: bool | int) -> list[tuple[str, str]]:
    found = inspect(str(root / "archive"), **how)
    assert found.count == len(found.problems)
    return [(problem.kind, problem.key) for problem in found.problems]


def asked(root: Path) -> Status:
    return status_of(str(root / "archive"), str(root / "lake"))


def test_an_archive_that_is_whole_has_no_problems(tmp_path: Path) -> None:
    archived(tmp_path)
    found = inspect(str(tmp_path / "archive"), last_manifest=3, deep=True)
    assert (found.manifests, found.segments, found.count) == (4, 4, 0)
    assert report_status.of_reports([asked(tmp_path)]) == exits.FINE


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_manifest_that_is_missing_before_others_is_a_problem(tmp_path: Path, number: int) -> None:
    archived(tmp_path).delete(manifest_key(number))
    assert kinds(tmp_path) == [("missing_manifest", manifest_key(number))]


def test_the_last_manifest_is_missed_where_the_lake_holds_it(tmp_path: Path) -> None:
    archived(tmp_path).delete(manifest_key(3))
    assert kinds(tmp_path) == []
    assert kinds(tmp_path, last_manifest=3) == [("missing_manifest", manifest_key(3))]


def test_with_a_manifest_missing_the_status_counts_up_to_the_last_one_and_reports_damage(tmp_path: Path) -> None:
    archived(tmp_path).delete(manifest_key(1))
    status = asked(tmp_path)
    assert (status.archive.manifests, status.archive.last) == (4, "1970-01-01T00:00:04.000Z")
    assert {table.behind for table in status.tables} == {4}
    assert report_status.of_reports([status]) == exits.DAMAGE
    (sentence,) = report_status.damage_in(status)
    assert sentence == f"{manifest_key(1)} is missing, though later ones are there: put it back from a copy"


def test_a_manifest_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    archive = archived(tmp_path)
    archive.delete(manifest_key(3))
    archive.put(manifest_key(3), b"{")
    assert kinds(tmp_path) == [("unreadable_manifest", manifest_key(3))]
    assert asked(tmp_path).archive.last is None


def test_a_missing_or_truncated_segment_is_a_problem(tmp_path: Path) -> None:
    archive = archived(tmp_path)
    gone, short = segment_of(archive, 1), segment_of(archive, 2)
    data = archive.get(short)
    for key in (gone, short):
        archive.delete(key)
    archive.put(short, data[:-1])
    assert kinds(tmp_path) == [("missing_segment", gone), ("wrong_size", short)]
    assert kinds(tmp_path, deep=True) == [("missing_segment", gone), ("wrong_content", short)]
    assert report_status.of_reports([asked(tmp_path)]) == exits.DAMAGE


def test_a_segment_of_the_right_size_is_judged_by_its_checksum_where_it_is_read(tmp_path: Path) -> None:
    archive = archived(tmp_path)
    key = segment_of(archive, 2)
    data = archive.get(key)
    archive.delete(key)
    archive.put(key, bytes([data[0] ^ 1]) + data[1:])
    assert kinds(tmp_path) == []
    assert kinds(tmp_path, deep=True) == [("wrong_content", key)]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_a_reader_does_not_take_a_missing_manifest_for_the_end(tmp_path: Path, start: int) -> None:
    archive = archived(tmp_path)
    archive.delete(manifest_key(2))
    with pytest.raises(Corrupt, match="manifests/000000000/002 is missing, and a later one is there"):
        list(manifests_from(archive, start))


def test_an_archive_of_the_former_format_is_a_problem_and_not_empty(tmp_path: Path) -> None:
    FileBlobs(tmp_path / "archive").put("manifests/000000000000", b'{"format":3,"number":0,"segments":[]}')
    (problem,) = inspect(str(tmp_path / "archive")).problems
    assert (problem.kind, problem.key) == ("unreadable_manifest", "manifests/000000000000")
    assert "has format 3, and this version of Hourwheel reads format 4" in problem.says
    assert report_status.of_reports([asked(tmp_path)]) == exits.DAMAGE


def test_an_archive_of_the_former_format_is_not_compacted_into_an_empty_lake(tmp_path: Path) -> None:
    archive = FileBlobs(tmp_path / "archive")
    archive.put("manifests/000000000000", b'{"format":3,"number":0,"segments":[]}')
    for first in (-1, 7):
        with pytest.raises(OtherFormat, match="has format 3") as error:
            list(new_links(archive, [TableProgress(last_manifest=first)]))
        assert exits.of_error(error.value) == exits.DAMAGE
