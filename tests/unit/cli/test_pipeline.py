"""``hourwheel pipeline`` without Spark: the archive, the way back, and how jobs are started on AWS."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.archive.sources import Item, MessageLog
from hourwheel.cli.pipeline import deployed, pipeline
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.offline import opened
from hourwheel.errors import Conflict, Corrupt
from hourwheel.groups.peek import PeekStart
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.retention.chain import end_of
from hourwheel.retention.manifests import manifest_key
from hourwheel_pipeline.jobs.job_names import Job
from tests.unit.cli.conftest import Shell

OUTPUTS = {
    "LakeBucket": "the-lake",
    "LakeDatabase": "orders_cell",
    "PipelineApplicationId": "00f",
    "PipelineSchedule": "orders-cell/daily",
    "ArchiveFunction": "orders-cell-archive",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with opened(tmp_path / "data") as context:
        Deployment(context).produce("orders", [NewMessage(body="a"), NewMessage(body="b")])
    return tmp_path / "data"


def test_a_data_directory_is_archived(shell: Shell, data: Path) -> None:
    (told,) = shell.json("pipeline", "run", "archive", "--data", str(data))
    assert told["job"] == "archive"
    assert (told["report"]["messages"], told["report"]["complete"]) == (2, True)
    assert "complete" in shell.ok("pipeline", "run", "archive", "--data", str(data))


def test_an_archive_that_misses_a_log_that_cannot_be_read_ends_with_a_failure(
    shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(self: MessageLog, start: int) -> Iterator[Item]:
        raise Corrupt("torn")

    monkeypatch.setattr(MessageLog, "items", unreadable)
    result = shell("pipeline", "run", "archive", "--data", str(data))
    assert result.exit_code == 1
    assert "archive" in result.stdout, "the report is printed nevertheless"


def test_the_status_of_what_was_never_archived_says_how_to_archive_it(shell: Shell, data: Path) -> None:
    told = shell.ok("pipeline", "status", "--data", str(data))
    assert f"hourwheel serve --data {data} --archive-every 60" in told
    shell.ok("pipeline", "run", "archive", "--data", str(data))
    assert "--archive-every" not in shell.ok("pipeline", "status", "--data", str(data))


def test_no_job_writes_to_a_directory_that_is_not_ours_alone(shell: Shell, data: Path) -> None:
    data.chmod(0o770)
    result = shell("pipeline", "run", "compact", "--data", str(data))
    assert result.exit_code == 1
    assert "others may write to" in result.output


def test_a_lost_database_is_rebuilt_from_the_archive(shell: Shell, data: Path) -> None:
    shell.ok("pipeline", "run", "archive", "--data", str(data))
    refused = shell("pipeline", "run", "rebuild", "--data", str(data))
    assert refused.exit_code == 1
    assert "rebuild into an empty one" in refused.output
    for file in data.glob("hourwheel.db*"):
        file.unlink()
    (told,) = shell.json("pipeline", "run", "rebuild", "--data", str(data), "--gap", "1000")
    assert (told["report"]["messages"], told["report"]["gap"]) == (2, 1_000)
    with opened(data) as context:
        assert Deployment(context).produce("orders", [NewMessage(body="c")])[0].offset == 1_002


def archived(data: Path) -> list[Path]:
    return list((data / "archive").rglob("*"))


def test_without_pyspark_nothing_is_archived_first(shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("hourwheel_pipeline.jobs.job_names")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    result = shell("pipeline", "run", "--data", str(data))
    assert result.exit_code == 1
    assert "pip install 'hourwheel[pipeline]'" in result.output
    assert archived(data) == []


def test_an_unknown_option_of_a_job_ends_the_run_before_anything_is_archived(shell: Shell, data: Path) -> None:
    result = shell("pipeline", "run", "--data", str(data), "--colour", "red")
    assert (result.exit_code, "there is no option colour" in result.output) == (2, True)
    assert archived(data) == []


@pytest.mark.parametrize(("fails", "status"), [("compact", 4), ("reconcile", 4), ("archive", 1)])
def test_the_daily_jobs_go_on_after_one_that_fails(
    shell: Shell, data: Path, monkeypatch: pytest.MonkeyPatch, fails: str, status: int
) -> None:
    ran = []

    def run(self: Job, spark: object, options: object, now_ms: int) -> dict[str, str]:
        if self.name == fails:
            raise Corrupt(f"{self.name} is torn")
        ran.append(self.name)
        return {}

    def archive(*_: object) -> None:
        raise Conflict("archive-other", "archive is torn")

    monkeypatch.setattr(Job, "run", run)
    if fails == "archive":
        monkeypatch.setattr(pipeline, "archive_logs", archive)
    result = shell("pipeline", "run", "--data", str(data))
    assert f"hourwheel: {fails} is torn" in result.stderr
    assert result.exit_code == status
    assert ran == [name for name in ("compact", "reconcile", "metrics", "report", "maintain") if name != fails]


def test_a_rebuild_says_what_it_left_out_and_ends_with_the_status_of_damage(shell: Shell, data: Path) -> None:
    shell.ok("pipeline", "run", "archive", "--data", str(data))
    for body in "cd":
        with opened(data) as context:
            Deployment(context).produce("orders", [NewMessage(body=body)])
        shell.ok("pipeline", "run", "archive", "--data", str(data))
    archive = FileBlobs(data / "archive")
    lost = manifest_key(end_of(archive) - 2)
    archive.delete(lost)
    for file in data.glob("hourwheel.db*"):
        file.unlink()
    result = shell("pipeline", "run", "rebuild", "--data", str(data), "--skip-damaged")
    assert result.exit_code == 4
    assert "without 1 manifest and 1 row of them" in result.stdout
    assert f"hourwheel: damaged: {lost} is missing" in result.stderr


def with_a_moved_queue(data: Path, cells: dict[str, Path]) -> None:
    """Fills the directories with a queue that was moved to another cell, back and there again."""
    with opened(data, cells=cells) as context:
        deployment = Deployment(context)
        deployment.cells.add("fast")
        deployment.groups.put("moved", "billing", retry=RetryPolicy(first_seconds=0))
        for number, where in enumerate(("fast", "home", "fast", None)):
            deployment.produce("moved", [NewMessage(body=f"{number}", key="k")])
            (pull,) = deployment.pull("moved", "billing", PullRequest(consumer="c")).pulls
            dead, retry = ([0] if number == at else [] for at in (1, 3))
            deployment.settle("moved", "billing", [Settlement(receipt=pull.receipt, dead=dead, retry=retry)])
            if where is not None:
                deployment.routes.move("moved", 0, where)


def test_a_queue_whose_parts_were_in_several_cells_is_rebuilt_from_the_archive(shell: Shell, tmp_path: Path) -> None:
    data, fast = tmp_path / "home", tmp_path / "fast"
    with_a_moved_queue(data, {"fast": fast})
    option = ("--cell", f"fast={fast}")
    (partial,) = shell.json("pipeline", "run", "archive", "--data", str(data))
    assert (partial["report"]["complete"], partial["report"]["cells_out"]) == (False, ["fast"])
    (told,) = shell.json("pipeline", "run", "archive", "--data", str(data), *option)
    assert (told["report"]["complete"], told["report"]["cells_out"]) == (True, [])
    for file in data.glob("hourwheel.db*"):
        file.unlink()
    refused = shell("pipeline", "run", "rebuild", "--data", str(data), *option)
    assert refused.exit_code == 1
    assert "belongs to cell fast of another home" in refused.output
    rmtree(fast)
    refused = shell("pipeline", "run", "rebuild", "--data", str(data))
    assert refused.exit_code == 1
    assert "--cell fast=DIRECTORY" in refused.output

    (told,) = shell.json("pipeline", "run", "rebuild", "--data", str(data), *option, "--gap", "1000")
    assert (told["report"]["lost"], told["report"]["unreadable"]) == (0, 0)
    with opened(data, cells={"fast": fast}) as context:
        deployment = Deployment(context)
        mappings = [(each.start, each.end, each.cell) for each in deployment.subjects.get("moved").route(0).mappings]
        assert mappings == [(0, 1, ""), (1, 2, "fast"), (2, 3, ""), (3, None, "fast")]
        pulls = deployment.pull("moved", "billing", PullRequest(consumer="c")).pulls
        found = {message.body: (message.offset, message.attempt) for pull in pulls for message in pull.messages}
        assert found == {"3": (3, 2)}
        shown = deployment.messages.peek("moved", 0, PeekStart(offset=0), 10).messages
        assert [(message.body, message.offset) for message in shown] == [("0", 0), ("1", 1), ("2", 2), ("3", 3)]
        (letter,) = deployment.dead_letters("moved", "billing").page(after=None, limit=10).messages
        assert (letter.body, letter.offset) == ("1", 1)
        assert deployment.produce("moved", [NewMessage(body="4")])[0].offset == 1_004


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run", "archive"], "name --data, or --archive and --lake, or on AWS --stack"),
        (["status", "--data", "nowhere"], "nowhere is no data directory"),
        (["run", "rebuild", "--archive", "a", "--lake", "b"], "name the --data directory"),
        (["run", "rebuild", "--archive", "a", "--lake", "b", "--gap", "wide"], "gap"),
        (["run", "rebuild", "--archive", "a", "--lake", "b", "wide"], "'wide' is not of the form --name value"),
        (["run", "archive", "--archive", "a", "--lake", "b"], "name the --data directory"),
    ],
)
def test_what_cannot_be_done_is_said(shell: Shell, words: list[str], sentence: str) -> None:
    result = shell("pipeline", *words)
    assert result.exit_code == 2
    assert sentence in " ".join(result.output.replace("│", " ").split())


class Amazon:
    """Answers as AWS does, and records its requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def call(self, region: str | None, service: str, verb: str, **how: Any) -> Any:
        self.asked.append((verb, how))
        return getattr(self, verb)()

    def describe_stacks(self) -> Any:
        return {"Stacks": [{"Outputs": [{"OutputKey": key, "OutputValue": text} for key, text in OUTPUTS.items()]}]}

    def get_schedule(self) -> Any:
        job = {
            "ApplicationId": "00f",
            "ClientToken": "<aws.scheduler.execution-id>",
            "ExecutionRoleArn": "arn:aws:iam::123456789012:role/job",
            "Name": "daily",
            "JobDriver": {
                "SparkSubmit": {
                    "EntryPoint": "s3://assets/emr.py",
                    "EntryPointArguments": ["daily", "--archive=s3://the-lake/archive", "--namespace=orders_cell"],
                }
            },
        }
        return {"Target": {"Input": json.dumps(job)}}

    def start_job_run(self) -> Any:
        return {"jobRunId": "00r"}

    def invoke(self) -> Any:
        return {"ResponseMetadata": {"RequestId": "77-88"}}

    def list_job_runs(self) -> Any:
        return {"jobRuns": [{"id": "00r", "name": "daily", "state": "SUCCESS", "createdAt": "2026-11-20"}]}


@pytest.fixture
def amazon(monkeypatch: pytest.MonkeyPatch) -> Amazon:
    made = Amazon()
    monkeypatch.setattr(deployed, "_call", made.call)
    return made


def test_on_aws_a_job_is_started_as_the_schedule_would_start_it(shell: Shell, amazon: Amazon) -> None:
    (told,) = shell.json("pipeline", "run", "compact", "--stack", "Orders", "--on-damage", "stop")
    assert told == {"job": "compact", "started": "00r"}
    verb, how = amazon.asked[-1]
    assert verb == "start_job_run"
    assert (how["applicationId"], how["name"]) == ("00f", "compact")
    assert "clientToken" not in how
    submit = how["jobDriver"]["sparkSubmit"]
    assert submit["entryPoint"] == "s3://assets/emr.py"
    assert submit["entryPointArguments"] == [
        "compact",
        "--archive=s3://the-lake/archive",
        "--namespace=orders_cell",
        "--on-damage=stop",
    ]


def test_on_aws_the_function_archives(shell: Shell, amazon: Amazon) -> None:
    (told,) = shell.json("pipeline", "run", "archive", "--stack", "Orders")
    assert told == {"job": "archive", "started": "77-88"}
    assert amazon.asked[-1][1]["FunctionName"] == "orders-cell-archive"


def test_the_last_runs_on_aws_are_listed(shell: Shell, amazon: Amazon) -> None:
    (told,) = shell.json("pipeline", "status", "--stack", "Orders")
    assert (told["lake"], told["runs"][0]["state"]) == ("s3://the-lake/lake", "SUCCESS")
    assert "SUCCESS" in shell.ok("pipeline", "status", "--stack", "Orders")


def test_a_stack_without_a_pipeline_is_told_so(shell: Shell, amazon: Amazon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(OUTPUTS, "PipelineApplicationId")
    result = shell("pipeline", "status", "--stack", "Orders")
    assert result.exit_code == 1
    assert "stack Orders has no pipeline: deploy it with -c hourwheel:pipeline=true" in result.output
