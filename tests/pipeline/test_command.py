"""``hourwheel pipeline`` where something is wrong: a sentence, and an exit status that a script can act on."""

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from hourwheel.adapters.files import FileBlobs
from hourwheel.archive.manifests import manifest_key
from hourwheel.cli.app import app
from hourwheel.cli.pipeline import DAILY, JOBS
from hourwheel.errors import Corrupt
from hourwheel.model import Message
from hourwheel_pipeline import exits, jobs
from hourwheel_pipeline.failures import Failed, translated
from hourwheel_pipeline.lake import Lake
from hourwheel_pipeline.schemas import MESSAGES, PARTITION, SCHEMAS, SORTED_BY
from tests.pipeline.archives import ArchiveBuilder


def command(root: Path, *words: str) -> Result:
    places = ("--archive", str(root / "archive"), "--lake", str(root / "lake"))
    return CliRunner().invoke(app, ["pipeline", *words, *places], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An archive of three manifests, and a lake without rows that holds all of them."""
    builder = ArchiveBuilder(FileBlobs(tmp_path / "archive"))
    for at_ms in (1_000, 2_000, 3_000):
        builder.row("orders~1/0", [Message(body="a")], at_ms)
        builder.commit()
    with closing(Lake.open(str(tmp_path / "lake"))) as lake:
        for table in SCHEMAS:
            lake.ensure(table, SCHEMAS[table], partition=PARTITION, sorted_by=SORTED_BY[table])
            lake.commit(table, added=[], notes={"hourwheel.through": "2", "hourwheel.aside": "[]"})
    return tmp_path


def test_where_all_is_well_the_status_is_zero(root: Path) -> None:
    found = command(root, "status")
    assert (found.exit_code, found.stderr) == (exits.FINE, "")
    assert "3 segments" in found.stdout


def test_the_command_line_knows_the_jobs_that_there_are() -> None:
    assert set(JOBS) == {*jobs.JOBS, "archive", "rebuild", DAILY}


@pytest.mark.parametrize("name", ["nojob", "session", "lake", "Report", "jobs.x", ""])
def test_what_is_no_job_is_refused_with_a_list_of_those_there_are(root: Path, name: str) -> None:
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


def test_an_up_to_date_lake_says_that_a_manifest_is_missing(root: Path) -> None:
    FileBlobs(root / "archive").delete(manifest_key(2))
    found = command(root, "run", "compact")
    assert found.exit_code == exits.DAMAGE
    assert found.stderr == (
        f"hourwheel: damaged: {manifest_key(2)} is missing, though the lake holds the archive up to manifest 2:"
        " put it back from a copy\n"
    )


def test_an_option_that_does_not_exist_is_wrong_usage(root: Path) -> None:
    found = command(root, "run", "compact", "--ticks", "1")
    assert (found.exit_code, found.stderr) == (
        exits.USAGE,
        "hourwheel: options of compact: there is no option ticks\n",
    )


def test_a_catalog_that_is_none_is_told_in_a_sentence_and_with_its_frames_if_they_are_wanted(root: Path) -> None:
    (root / "lake/catalog.db").write_bytes(b"no database" * 100)
    found = command(root, "run", "compact")
    assert (found.exit_code, found.stderr) == (
        exits.FAULT,
        "hourwheel: the catalog of the lake cannot be used: file is not a database\n",
    )
    assert "Traceback (most recent call last)" in command(root, "run", "compact", "--traceback").stderr


def test_a_table_whose_metadata_is_gone_is_damage_and_named(root: Path) -> None:
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
def test_of_what_a_library_says_one_sentence_is_left(raised: str, sentence: str) -> None:
    error = translated(pa.ArrowInvalid(raised))
    assert str(error) == sentence
    assert isinstance(error, Corrupt if "Corrupt" in raised else Failed)
