"""A lake in an S3 bucket, with its catalog in Glue, keeps its promises; only the files that Spark writes are left to
EMR."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore import endpoint as endpoints
from botocore import httpsession
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, ConnectionClosedError

from hourwheel.adapters.aws import s3
from hourwheel.system import SystemClock
from hourwheel_pipeline.jobs.maintain import MaintainOptions, Maintenance
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.tables import Lake
from tests.contract.services import ministack

REGION, BUCKET = "us-east-1", "lake"
SCHEMA = pa.schema([pa.field("day", pa.date32()), pa.field("n", pa.int64())])
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, ministack(tmp_path_factory.mktemp("ministack")) as found:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[Any]:
    opened = s3.client(region=REGION, endpoint_url=endpoint)
    opened.create_bucket(Bucket=BUCKET)
    yield opened
    opened.close()


@pytest.fixture
def lake(endpoint: str, client: Any, request: pytest.FixtureRequest) -> Iterator[Lake]:
    name = request.node.name
    opened = Lake.open(f"s3://{BUCKET}/{name}", namespace=name, region=REGION, endpoint_url=endpoint)
    with closing(opened):
        opened.ensure("figures", SCHEMA, sorted_by=("n",))
        yield opened


def put(client: Any, lake: Lake, run: str, *numbers: int) -> list[str]:
    """Writes a file as a run does. Returns its path."""
    rows = pa.table({"day": [date(2026, 1, 1)] * len(numbers), "n": list(numbers)}, schema=SCHEMA)
    data = BytesIO()
    pq.write_table(rows, data)
    folder = lake.folder("figures", run)
    client.put_object(Bucket=BUCKET, Key=f"{folder.removeprefix(f's3://{BUCKET}/')}/a.parquet", Body=data.getvalue())
    return [file.path for file in lake.written(folder)]


def test_a_lake_in_a_bucket_is_committed_read_and_kept_in_order(lake: Lake, client: Any) -> None:
    lake.ensure("figures", SCHEMA, sorted_by=("n",))
    first = put(client, lake, "first", 1, 2)
    lake.commit("figures", added=first, properties={"hourwheel.a": "1"}, on={})
    files = [task.file for task in lake.table("figures").scan().plan_files()]
    assert [file.file_path for file in files] == first
    merged = put(client, lake, "merged", 1, 2)
    lake.commit("figures", added=merged, removed=files)
    assert lake.properties("figures") == {"hourwheel.a": "1"}
    assert [lake.files.rows(path)["n"].to_pylist() for path in merged] == [[1, 2]]
    put(client, lake, "stopped", 3)
    report = maintained(lake)
    assert report.snapshots_expired == 1
    assert [file.path for file in lake.files.below(f"{lake.location}/figures/data")] == merged
    assert lake.table("figures").scan().to_arrow()["n"].to_pylist() == [1, 2]
    lake.files.delete_folder(lake.folder("figures", "merged"))
    lake.files.delete_folder(lake.folder("figures", "never"))
    assert lake.written(lake.folder("figures", "merged")) == []


def test_a_commit_whose_answer_is_lost_stands_and_is_not_repeated(
    lake: Lake, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog: Any = lake.catalog
    sent = []

    def lost(request: Any, **_: Any) -> None:
        sent.append(request)
        httpsession.URLLib3Session().send(request)
        raise ConnectionClosedError(endpoint_url=request.url)

    catalog.glue.meta.events.register("before-send.glue.UpdateTable", lost)
    with pytest.raises(ConnectionClosedError):
        lake.commit("figures", added=put(client, lake, "lost", 4), properties={"hourwheel.a": "2"})
    assert len(sent) == 1
    assert lake.properties("figures") == {"hourwheel.a": "2"}
    assert lake.table("figures").scan().to_arrow()["n"].to_pylist() == [4]


class Throttled:
    """Refuses a call this many times."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, request: Any, **_: Any) -> AWSResponse | None:
        if not self.left:
            return None
        self.left -= 1
        body = json.dumps({"__type": "ThrottlingException", "message": "Rate exceeded"}).encode()
        return AWSResponse(request.url, 400, {}, SimpleNamespace(stream=lambda *_: iter([body])))


def test_a_read_that_is_throttled_is_retried_and_a_commit_is_not(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    # The module of this one file: other threads sleep by the same ``time``.
    monkeypatch.setattr(endpoints, "time", SimpleNamespace(sleep=waits.append))
    catalog: Any = lake.catalog
    events = catalog.glue.meta.events
    events.register("before-send.glue.GetTable", Throttled(3))
    assert lake.properties("figures") == {}
    assert waits == [0.2, 0.4, 0.8]
    refused = Throttled(1)
    events.register("before-send.glue.UpdateTable", refused)
    with pytest.raises(ClientError, match="Rate exceeded"):
        lake.commit("figures", added=[], properties={"hourwheel.a": "1"})
    assert (refused.left, len(waits)) == (0, 3)
    events.register("before-send.glue.GetTable", Throttled(100))
    with pytest.raises(ClientError, match="Rate exceeded"):
        lake.table("figures")


def maintained(lake: Lake) -> Any:
    options = MaintainOptions(lake=lake.location, keep_seconds=0, grace_seconds=0)
    later_ms = SystemClock().now_ms() + 60_000
    no_spark: Any = None  # there is nothing to merge
    return Maintenance(no_spark, options, lake, "figures").run(later_ms)


def test_an_archive_in_a_bucket_is_opened_by_its_address(endpoint: str, client: Any) -> None:
    archive = blobs_at(f"s3://{BUCKET}/archive/", REGION, endpoint)
    archive.put("manifests/0", b"x")
    assert archive.list("") == ["manifests/0"]
    assert client.get_object(Bucket=BUCKET, Key="archive/manifests/0")["Body"].read() == b"x"
