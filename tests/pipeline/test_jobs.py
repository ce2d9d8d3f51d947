"""The program that EMR Serverless runs: its options, its reports, its metrics in CloudWatch, its requests to Glue."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError
from pyiceberg.catalog.glue import GlueCatalog
from pyspark.sql import SparkSession

from hourwheel.errors import Rejected
from hourwheel_pipeline.__main__ import main, parser
from hourwheel_pipeline.jobs.job_names import DAILY, Job, jobs_of, options_of, read_options
from hourwheel_pipeline.judging.reconciliation import Reconciled, Unknown
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.outcomes import metrics_upload
from tests.contract.services import ministack
from tests.pipeline.days import CloudWatch, Day, arguments_of
from tests.pipeline.test_lake_s3 import ENVIRONMENT, REGION
from tests.pipeline.worlds import World

GIVEN = {"archive": "/archive", "lake": "/lake", "output": "/report"}
ALLOWED = {"GetDatabase", "CreateTable", "GetTable", "GetTables", "UpdateTable"}
"""By the role of the job on AWS: see ``infra/pipeline.py``."""


@pytest.mark.parametrize("name", DAILY)
def test_each_job_says_what_it_does_and_takes_its_options_as_text(name: str) -> None:
    job = Job(name)
    assert len(job.about) > 20
    own = {option.name for option in job.options}
    options = job.read({key: text for key, text in GIVEN.items() if key in own}, 1)
    assert options.lake == "/lake"
    assert {option.name for option in job.options if option.required} <= GIVEN.keys()


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("compact", {"step_bytes": "many"}, "step_bytes"),
        ("compact", {"on_damage": "ignore"}, "on_damage"),
        ("reconcile", {"since": "yesterday"}, "since"),
        ("reconcile", {"since": "2026-11-01", "days": "3"}, "give since or days, not both"),
        ("metrics", {"days": "0"}, "days"),
        ("maintain", {"lake": None}, "lake"),
        ("maintain", {"archive": "/archive"}, "there is no option archive"),
        ("compact", {"ticks": "1"}, "there is no option ticks"),
    ],
)
def test_an_option_that_is_wrong_is_named(name: str, given: dict[str, str | None], said: str) -> None:
    own = {option.name for option in options_of(jobs_of(name))}
    whole = {**{key: text for key, text in GIVEN.items() if key in own}, **given}
    with pytest.raises(Rejected, match=said):
        read_options(jobs_of(name), {key: text for key, text in whole.items() if text is not None}, 1)


def test_each_job_of_the_day_gets_the_options_that_it_has() -> None:
    jobs = jobs_of("daily")
    every = dict(zip(DAILY, read_options(jobs, {**GIVEN, "late_seconds": "9", "file_bytes": "7"}, 5), strict=True))
    assert every["reconcile"].late_seconds == 9
    assert every["compact"].file_bytes == every["maintain"].file_bytes == 7
    assert every["report"].output == "/report"


def test_days_are_counted_back_from_now() -> None:
    now_ms = 1_795_219_199_999
    for name, job in zip(DAILY, read_options(jobs_of("daily"), {**GIVEN, "days": "40"}, now_ms), strict=True):
        if name in ("reconcile", "metrics"):
            assert job.first_day(now_ms) == date(2026, 10, 11)
            assert job.first_day(now_ms + 1) == date(2026, 10, 12)


def test_an_alarm_is_of_errors_that_are_new() -> None:
    nothing = Unknown(segments=0, quarantined=[], ranges=0, rows=[], snapshots=[])
    found = Reconciled(
        found_ms=1,
        began_ms=0,
        horizon_ms=1,
        last_manifest={},
        rows={},
        counts={"late": 3, "lost": 2},
        new_errors=1,
        expired={},
        unknown=nothing,
    )
    assert metrics_upload.metrics_of([found]) == {"ReconcileFindings": 1, "ArchiveLacksObjects": 0}


def test_the_same_arguments_start_any_job() -> None:
    daily = [f"--{name}={text}" for name, text in GIVEN.items()]
    for name in (*DAILY, "daily"):
        assert parser().parse_args([name, *daily, "--late-seconds=9", "--cell=c"]).job == name
    replay = ["--name=again", "--subject=orders"]
    assert parser().parse_args(["replay", *daily, *replay, "--cell=c"]).job == "replay"


def test_a_missing_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compact", "--archive=/archive"])
    assert ended.value.code == 2
    assert "--lake" in capsys.readouterr().err


@pytest.fixture
def cloudwatch(monkeypatch: pytest.MonkeyPatch) -> CloudWatch:
    return CloudWatch(monkeypatch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    found.bench.send("a", "b")
    found.acknowledge("orders", "billing")
    found.rest()
    return found


def test_the_daily_jobs_print_reports_and_write_metrics(day: Day) -> None:
    assert day.status == 0
    assert [json.loads(line)["job"] for line in day.printed] == list(DAILY)
    assert day.figures == {"ReconcileFindings": 0, "QuarantinedSegments": 0, "ArchiveLacksObjects": 0}
    assert list((day.world.root / "report").iterdir())


def test_on_the_first_day_there_is_nothing_and_nothing_is_wrong(
    spark: SparkSession, tmp_path: Path, cloudwatch: CloudWatch
) -> None:
    assert main(["daily", *arguments_of(World(tmp_path))]) == 0
    assert cloudwatch.figures == {"ReconcileFindings": 0, "QuarantinedSegments": 0, "ArchiveLacksObjects": 0}


def test_damage_is_reported_and_a_job_with_on_damage_stop_fails(
    spark: SparkSession, world: World, cloudwatch: CloudWatch, capsys: pytest.CaptureFixture[str]
) -> None:
    segments = sorted((world.root / "archive/segments/messages").rglob("*"))
    damaged = next(path for path in segments if path.is_file())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["compact", *arguments_of(world), "--on-damage=stop"]) == 4
    assert "cannot be read" in capsys.readouterr().err
    assert cloudwatch.figures == {}
    assert main(["compact", *arguments_of(world)]) == 4
    assert cloudwatch.figures == {"QuarantinedSegments": 1}


@pytest.mark.parametrize(
    "failure",
    [
        ConnectTimeoutError(endpoint_url="https://logs"),
        EndpointConnectionError(endpoint_url="https://logs"),
        ValueError("something else"),
    ],
)
def test_metrics_that_cannot_be_written_fail_no_job(
    spark: SparkSession, world: World, cloudwatch: CloudWatch, capsys: pytest.CaptureFixture[str], failure: Exception
) -> None:
    cloudwatch.failure = failure
    assert main(["compact", *arguments_of(world)]) == 0
    assert "the metrics of this run are not in CloudWatch" in capsys.readouterr().err
    assert 1 <= cloudwatch.requests <= 3


def test_a_job_does_not_wait_for_metrics_that_hang(capsys: pytest.CaptureFixture[str]) -> None:
    over = threading.Event()
    metrics_upload.without_failing(over.wait, patience_seconds=0.01)
    assert "CloudWatch Logs has not answered for 0.01 s" in capsys.readouterr().err
    over.set()


@pytest.fixture
def glue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with ministack(tmp_path) as endpoint:
        with closing(boto3.client("s3", region_name=REGION, endpoint_url=endpoint)) as client:
            client.create_bucket(Bucket="flights")
        with closing(boto3.client("glue", region_name=REGION, endpoint_url=endpoint)) as client:
            client.create_database(DatabaseInput={"Name": "air"})
        yield endpoint


def test_glue_is_asked_no_more_than_the_role_of_the_job_allows(glue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[str] = []

    def refused(self: GlueCatalog, namespace: Any, properties: Any = None) -> None:
        wanted.append(namespace)
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "CreateDatabase")

    monkeypatch.setattr(GlueCatalog, "create_namespace", refused)  # the stack makes the database
    schema = pa.schema([pa.field("day", pa.date32()), pa.field("n", pa.int64())])
    asked: set[str] = set()
    with closing(Lake.open("s3://flights/lake", namespace="air", region=REGION, endpoint_url=glue)) as lake:
        catalog: Any = lake.catalog
        catalog.glue.meta.events.register("before-call.glue", lambda model, **_: asked.add(model.name))
        lake.ensure("pulls", schema, sorted_by=("n",))
        lake.commit("pulls", added=[], properties={"hourwheel.last-manifest": "0"})
        assert lake.properties("pulls") == {"hourwheel.last-manifest": "0"}
        assert lake.table_progress("findings").last_manifest == -1
        assert lake.tables() == ["pulls"]
    assert wanted == []
    assert asked <= ALLOWED
    assert {"CreateTable", "GetTable", "GetTables", "UpdateTable"} <= asked
