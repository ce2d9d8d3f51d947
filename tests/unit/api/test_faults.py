"""An error leads to the right answer to the client, and to the right line in the log."""

import json
import logging
from typing import Any

import pytest

from hourwheel.api.problems import problem_of
from hourwheel.deployment.subjects import SubjectService
from hourwheel.errors import (
    Broken,
    Conflict,
    Corrupt,
    Filled,
    NotFound,
    OutcomeUnknown,
    Rejected,
    Sealed,
    StorageFull,
    Throttled,
    TooLarge,
)
from tests.unit.api.conftest import MESSAGES, Api

SECRET = "what-the-client-sent"


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (Rejected("field-invalid", "x", field="f"), 400, "field-invalid"),
        (NotFound("subject-unknown", "x"), 404, "subject-unknown"),
        (Conflict("changed-meanwhile", "x"), 409, "changed-meanwhile"),
        (TooLarge("batch-too-large", "x"), 413, "batch-too-large"),
        (Throttled("x"), 503, "unavailable"),
        (OutcomeUnknown("x"), 503, "unavailable"),
        (Sealed("x"), 409, "changed-meanwhile"),
        (Filled("x"), 409, "changed-meanwhile"),
        (StorageFull("x"), 507, "storage-full"),
        (Corrupt("x"), 500, "internal"),
        (Broken("x"), 500, "internal"),
        (NotFound("blob-not-found", "a segment is gone: that is no mistake of the client"), 500, "internal"),
        (ZeroDivisionError("x"), 500, "internal"),
    ],
    ids=repr,
)
def test_each_error_has_its_status_and_type(error: Exception, status: int, slug: str) -> None:
    response = problem_of(error, "r-1")
    document = json.loads(response["body"])
    assert (response["statusCode"], document["type"]) == (status, f"urn:hourwheel:{slug}")


def test_an_unavailable_store_says_when_to_come_back() -> None:
    assert int(problem_of(Throttled("x"), "r-1")["headers"]["retry-after"]) > 0


def fail(api: Api, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Any:
    def produce(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(type(api.bench.deployment), "store_batch", produce)
    return api.call("POST", MESSAGES, {"messages": [{"body": SECRET}]})


def test_a_fault_of_ours_is_told_by_its_correlation_id_alone(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = fail(api, monkeypatch, ValueError(SECRET))
    assert (answer.status, answer.slug, answer.json["instance"]) == (500, "internal", "r-1")
    assert SECRET not in json.dumps(answer.json)


def test_a_fault_of_ours_is_one_line_in_the_log(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(api, monkeypatch, ValueError(SECRET))
    (line,) = api.log.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["correlation_id"], entry["error"]) == ("ERROR", "r-1", "ValueError")
    assert any("test_faults.py" in frame for frame in entry["stack"])
    assert SECRET not in line
    assert ("Faults", 1) in api.bench.meter.metrics


def test_the_reason_of_an_error_of_our_own_is_logged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(api, monkeypatch, Corrupt("block fails its checksum"))
    assert json.loads(api.log.getvalue())["reason"] == "block fails its checksum"


def test_what_is_not_our_fault_is_not_logged(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(api, monkeypatch, Conflict("changed-meanwhile", "x"))
    api.call("POST", MESSAGES, {})
    assert api.log.getvalue() == ""


def tell(*_: Any) -> Any:
    logging.getLogger("hourwheel").error("something of ours")


def ids_of(caplog: pytest.LogCaptureFixture) -> list[str | None]:
    return [vars(entry)["correlation_id"] for entry in caplog.records]


def test_what_the_library_logs_carries_the_id_of_its_request(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(SubjectService, "page", lambda *_: tell() or ([], None))
    assert api.call("GET", "/v1/subjects").status == 200
    tell()
    assert ids_of(caplog) == ["r-1", None]


def test_what_the_library_logs_carries_the_id_of_its_invocation(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    class Invocation:
        aws_request_id = "i-1"

        def get_remaining_time_in_millis(self) -> int:
            return 10_000

    api.boundary.run(tell, {}, Invocation())
    assert ids_of(caplog) == ["i-1"]
