"""``hourwheel pipeline`` after a fault prints a sentence, and ends with a status on which a script can act."""

import re
import stat
import subprocess
import sys
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from hourwheel.adapters.files import FileBlobs
from hourwheel.cli.app import app
from hourwheel.cli.pipeline.jobs import DAILY, JOBS
from hourwheel.cli.pipeline.output import Output
from hourwheel.errors import Corrupt, Rejected
from hourwheel.model.messages import Message
from hourwheel.retention.manifests import manifest_key
from hourwheel_pipeline.jobs import job_names
from hourwheel_pipeline.jobs.repair import RepairOptions, TableRepair, report_of
from hourwheel_pipeline.lake.schemas import BOUNDED, MESSAGES, PULLS, SCHEMAS, SORTED_BY
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.outcomes import report_status
from hourwheel_pipeline.outcomes.summaries import summary_of
from hourwheel_pipeline.runs import exits
from hourwheel_pipeline.runs.failures import JobFailed, translated
from tests.pipeline.archives import ArchiveBuilder


def command(root: Path, *words: str) -> Result:
    places = ("--archive", str(root / "archive"), "--lake", str(root / "lake"))
    return CliRunner().invoke(app, ["pipeline", *words, *places], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Returns a folder with an archive of three manifests, and with a lake without rows that holds all of them."""
    builder = ArchiveBuilder(FileBlobs(tmp_path / "archive"))
    for at_ms in (1_000, 2_000, 3_000):
        builder.row("orders~1/0", [Message(body="a")], at_ms)
        builder.commit()
    with closing(Lake.open(str(tmp_path / "lake"))) as lake:
        for table in SCHEMAS:
            lake.ensure(table, SCHEMAS[table], sorted_by=SORTED_BY[table], bounded=BOUNDED[table])
            lake.commit(table, added=[], properties={"hourwheel.last-manifest": "2", "hourwheel.quarantined": "[]"})
    return tmp_path


def test_where_all_is_well_the_status_is_zero(root: Path) -> None:
    found = command(root, "status")
    assert (found.exit_code, found.stderr) == (exits.FINE, "")
    assert "3 segments" in found.stdout


def test_the_command_line_knows_the_jobs_that_there_are() -> None:
    assert set(JOBS) == {*job_names.JOBS, "archive", "rebuild", DAILY}


@pytest.mark.parametrize("name", ["nojob", "session", "lake", "Report", "jobs.x", ""])
def test_an_unknown_job_is_refused_with_a_list_of_the_jobs(root: Path, name: str) -> None:
    found = command(root, "run", name)
    assert found.exit_code == exits.USAGE
    assert f"there is no job {name!r}" in found.stderr
    assert "replay" in found.stderr


def test_a_segment_that_was_deleted_after_it_was_compacted_is_damage(root: Path) -> None:
    archive = FileBlobs(root / "archive")
    (key, *_) = archive.list("segments/messages/")
    archive.delete(key)
    found = command(root, "status")
    assert found.exit_code == exits.DAMAGE
    assert found.stderr == f"hourwheel: damaged: {key}, of manifest 0, is missing: put it back from a copy\n"


def test_compacting_an_up_to_date_lake_reports_a_missing_manifest(root: Path) -> None:
    FileBlobs(root / "archive").delete(manifest_key(2))
    found = command(root, "run", "compact")
    assert found.exit_code == exits.DAMAGE
    assert found.stderr == (
        f"hourwheel: damaged: {manifest_key(2)} is missing, though the lake holds the archive up to manifest 2:"
        " put it back from a copy\n"
    )


def test_compacting_an_up_to_date_lake_reports_a_missing_segment(root: Path) -> None:
    archive = FileBlobs(root / "archive")
    (key, *_) = archive.list("segments/messages/")
    archive.delete(key)
    found = command(root, "run", "compact")
    assert found.exit_code == exits.DAMAGE
    assert found.stderr == f"hourwheel: damaged: {key}, of manifest 0, is missing: put it back from a copy\n"


def test_a_missing_or_truncated_data_file_of_the_lake_is_damage(root: Path) -> None:
    files = [data_file(root, name) for name in ("whole", "gone", "short")]
    assert command(root, "status").exit_code == exits.FINE
    _, gone, short = files
    gone.unlink()
    size = short.stat().st_size
    short.write_bytes(short.read_bytes()[:-1])
    found = command(root, "status")
    assert found.exit_code == exits.DAMAGE
    repair = "hourwheel pipeline run repair restores its rows from the archive"
    assert sorted(found.stderr.splitlines()) == [
        f"hourwheel: damaged: {gone} of the lake is missing: {repair}",
        f"hourwheel: damaged: {short} of the lake has {size - 1} bytes and should have {size}: {repair}",
    ]


def data_file(root: Path, name: str) -> Path:
    """Adds a file with a row to the table of messages."""
    with closing(Lake.open(str(root / "lake"))) as lake:
        path = Path(lake.folder(MESSAGES, name)) / "rows.parquet"
        path.parent.mkdir(parents=True)
        row = {
            "day": date(2026, 11, 1),
            "subject": "orders",
            "log": "orders~1/0",
            "kind": "queue",
            "row": 0,
            "index": 0,
        }
        row |= {"sequence": 0, "accepted_at": datetime(2026, 11, 1, tzinfo=UTC), "manifest": 0}
        pq.write_table(pa.Table.from_pylist([row], schema=SCHEMAS[MESSAGES]), path)
        lake.commit(MESSAGES, added=[str(path)])
    return path


def test_numbers_agree_with_their_nouns(root: Path) -> None:
    archive = FileBlobs(root / "archive")
    keys = archive.list("segments/messages/")
    for broken, sentence in enumerate(("no problems", "1 problem", "2 problems")):
        if broken:
            archive.delete(keys[broken - 1])
        assert f"listed: {sentence}\n" in command(root, "status").stdout


def test_a_job_is_reported_in_a_line_with_its_result_and_its_time(root: Path) -> None:
    assert re.fullmatch(r"compact   nothing new \(\d+\.\d s\)\n", command(root, "run", "compact").stdout)


def test_programs_that_a_job_starts_write_into_a_log_that_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [sys.executable, "-c", "import sys; sys.stderr.write('a warning of Java')"]
    with Output(json=False, verbose=False).aside(tmp_path):
        subprocess.run(words, check=True)
    assert capfd.readouterr().err == f"Spark's own output is in {tmp_path / 'spark.log'}\n"
    assert (tmp_path / "spark.log").read_text() == "a warning of Java"
    assert stat.S_IMODE((tmp_path / "spark.log").stat().st_mode) == 0o600
    with Output(json=False, verbose=True).aside(tmp_path):
        subprocess.run(words, check=True)
    assert capfd.readouterr().err == "a warning of Java"


def test_a_condition_that_is_none_is_wrong_usage() -> None:
    assert exits.of_error(Rejected("condition-wrong", "where is no condition on messages")) == exits.USAGE
    assert exits.of_error(Rejected("subject-wrong", "from the server")) == exits.FAULT


def test_repair_names_the_objects_that_only_a_copy_can_restore_and_ends_with_damage(root: Path) -> None:
    archive = FileBlobs(root / "archive")
    missing, quarantined = archive.list("segments/messages/")[:2]
    archive.delete(missing)
    options = RepairOptions(archive=str(root / "archive"), lake=str(root / "lake"))
    properties = {
        "hourwheel.quarantined": msgspec.json.encode([QuarantinedSegment(1, quarantined, 1, "it is cut off")]).decode()
    }
    lost = TableRepair(table=MESSAGES, rows=3, removed=["a: it is missing"], lost=[f"{missing}: segment is missing"])
    with closing(Lake.open(str(root / "lake"))) as lake:
        whole = report_of(lake, options, [])
        lake.commit(MESSAGES, added=[], properties=properties)
        report = report_of(lake, options, [TableRepair(table=PULLS), lost])
    assert summary_of(whole) == (
        "3 segments and no data files checked: 1 object that only a copy of the archive can bring back"
    )
    assert report_status.damage_in(whole) == [f"{missing}, of manifest 0, is missing: put it back from a copy"]
    assert [table.table for table in report.tables] == [MESSAGES]
    assert summary_of(report) == (
        "3 segments and 1 data file checked: 1 damaged data file removed, 3 rows restored from the archive,"
        " 2 objects that only a copy of the archive can bring back"
    )
    assert report_status.damage_in(report) == [
        f"{missing}: segment is missing",
        f"{quarantined} is quarantined (it is cut off): put it back from a copy, then run compact with --again",
    ]
    assert report_status.of_reports([whole]) == report_status.of_reports([report]) == exits.DAMAGE


def test_an_option_that_does_not_exist_is_wrong_usage(root: Path) -> None:
    found = command(root, "run", "compact", "--ticks", "1")
    assert (found.exit_code, found.stderr) == (
        exits.USAGE,
        "hourwheel: options of compact: there is no option ticks\n",
    )


def test_an_unreadable_catalog_is_reported_in_a_sentence_and_with_frames_on_demand(root: Path) -> None:
    (root / "lake/catalog.db").write_bytes(b"no database" * 100)
    found = command(root, "run", "compact")
    assert (found.exit_code, found.stderr) == (
        exits.FAULT,
        "hourwheel: the catalog of the lake cannot be used: file is not a database\n",
    )
    assert "Traceback (most recent call last)" in command(root, "run", "compact", "--traceback").stderr


def test_a_table_whose_metadata_is_missing_is_damage_and_named(root: Path) -> None:
    with closing(Lake.open(str(root / "lake"))) as lake:
        metadata = Path(lake.table(MESSAGES).metadata_location.removeprefix("file://"))
    metadata.unlink()
    found = command(root, "status")
    assert found.exit_code == exits.DAMAGE
    assert found.stderr.startswith(f"hourwheel: {metadata}, which describes a table of the lake, is missing or damaged")
    assert found.stderr.count("\n") == 1


FRAMES = "Traceback:\n  File x\nhourwheel.errors.Corrupt: segment x is cut off\n\tat Java"
SYNTAX = "[PARSE_SYNTAX_ERROR] Syntax error at 'lik'."


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (f"An exception\n\n{FRAMES}", "segment x is cut off"),
        ("java.lang.IllegalStateException: no more memory\n\tat org.apache.Spark\n", "no more memory"),
        (f"{SYNTAX} SQLSTATE: 42601\n== SQL ==\nkey lik", SYNTAX),
    ],
)
def test_an_error_of_a_library_becomes_one_sentence(raised: str, sentence: str) -> None:
    error = translated(pa.ArrowInvalid(raised))
    assert str(error) == sentence
    assert isinstance(error, Corrupt if "Corrupt" in raised else JobFailed)
