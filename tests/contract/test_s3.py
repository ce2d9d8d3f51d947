"""The S3 adapter keeps its own promises: conditional puts, ranges instead of complete objects, and its errors."""

from collections.abc import Iterator
from typing import Any

import pytest

from hourwheel.adapters.aws import s3
from hourwheel.adapters.aws.s3 import S3Blobs, S3LakeFiles
from hourwheel.errors import Broken, OutcomeUnknown

from .stores import BUCKET


@pytest.fixture
def blobs(s3_client: Any, partition: str) -> S3Blobs:
    return S3Blobs(lambda: s3_client, BUCKET, prefix=f"{partition}/")


def test_an_object_lies_below_the_prefix(blobs: S3Blobs, s3_client: Any, partition: str) -> None:
    blobs.put("a/b", b"1")
    assert s3_client.get_object(Bucket=BUCKET, Key=f"{partition}/a/b")["Body"].read() == b"1"
    assert blobs.list("a") == ["a/b"]


def test_only_the_range_is_fetched(blobs: S3Blobs, s3_client: Any) -> None:
    blobs.put("a", bytes(1000))
    ranges: list[str] = []
    events = s3_client.meta.events
    events.register("provide-client-params.s3.GetObject", record := lambda params, **_: ranges.append(params["Range"]))
    blobs.get("a", offset=10, length=5)
    blobs.get("a", offset=990)
    events.unregister("provide-client-params.s3.GetObject", record)
    assert ranges == ["bytes=10-14", "bytes=990-"]


def test_every_put_is_conditional(blobs: S3Blobs, s3_client: Any) -> None:
    conditions: list[str] = []
    events = s3_client.meta.events
    events.register(
        "provide-client-params.s3.PutObject", note := lambda params, **_: conditions.append(params["IfNoneMatch"])
    )
    blobs.put("a", b"1")
    events.unregister("provide-client-params.s3.PutObject", note)
    assert conditions == ["*"]


def test_a_bucket_that_is_not_there_is_broken(s3_client: Any) -> None:
    nowhere = S3Blobs(lambda: s3_client, "no-such-bucket")
    for call in (lambda: nowhere.put("a", b""), lambda: nowhere.get("a"), lambda: nowhere.list("")):
        with pytest.raises(Broken, match="NoSuchBucket"):
            call()


def test_the_lake_has_no_file_that_is_missing_or_may_not_be_read(blobs: S3Blobs, s3_client: Any) -> None:
    blobs.put("last-runs/compact.json", b"{}")
    lake = S3LakeFiles(blobs)
    assert (lake.read("last-runs/compact.json"), lake.read("last-runs/report.json")) == (b"{}", None)
    assert S3LakeFiles(S3Blobs(lambda: s3_client, "no-such-bucket")).read("last-runs/compact.json") is None


@pytest.fixture
def nobody() -> Iterator[S3Blobs]:
    opened = s3.client(region="us-east-1", endpoint_url="http://127.0.0.1:9")  # nothing listens there
    yield S3Blobs(lambda: opened, BUCKET)
    opened.close()


def test_a_service_that_is_not_there_leaves_the_outcome_unknown(nobody: S3Blobs) -> None:
    with pytest.raises(OutcomeUnknown):
        nobody.delete("a")
