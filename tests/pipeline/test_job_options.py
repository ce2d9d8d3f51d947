"""Options that are wrong are refused in sentences of our own."""

from typing import Any

import pytest

from hourwheel.errors import Rejected
from hourwheel_pipeline.jobs.job_names import Job
from pyspark_hourwheel.options import BatchOptions, StreamOptions, WriteOptions, read_options

LAKE = {"lake": "/lake"}
BOTH = {"archive": "/archive", **LAKE}
REPLAY = {**LAKE, "name": "again", "subject": "orders", "dry_run": "true"}


@pytest.mark.parametrize(
    ("job", "options", "sentence"),
    [
        ("compact", {**BOTH, "again": "perhaps"}, "option 'again': give true or false, not 'perhaps'"),
        ("compact", {**BOTH, "on_damage": "ignore"}, "option 'on_damage': give 'quarantine' or 'stop', not 'ignore'"),
        ("compact", {**BOTH, "step_bytes": "0"}, "option 'step_bytes': give a number above 0, not 0"),
        ("compact", {"archive": "", **LAKE}, "option 'archive': it is empty"),
        ("maintain", {**LAKE, "file_bytes": "1.5"}, "option 'file_bytes': give a whole number, not '1.5'"),
        ("maintain", {**LAKE, "keep_seconds": "-1"}, "option 'keep_seconds': give a number of at least 0, not -1"),
        ("reconcile", {**BOTH, "since": "Monday"}, "option 'since': give a day, such as 2026-11-20, not 'Monday'"),
        ("reconcile", {**BOTH, "since": "2026-11-20", "days": "3"}, "give since or days, not both"),
        ("reconcile", {**BOTH, "late_seconds": "soon"}, "option 'late_seconds': give a number, not 'soon'"),
        ("metrics", LAKE, "the option 'archive' is missing"),
        ("replay", {**REPLAY, "subject": "a b"}, "option 'subject': it must match"),
        ("replay", {**REPLAY, "since": "2026-11-20T09:00"}, "option 'since': give a time with a zone, such as 2026"),
        ("replay", {**REPLAY, "since": "yesterday"}, "option 'since': give a time with a zone, such as 2026"),
        ("replay", {**REPLAY, "retry_seconds": "9999"}, "option 'retry_seconds': give a number of at most 400"),
        ("replay", {**REPLAY, "dry_run": "false"}, "a replay needs the url of the server, or dry_run"),
        ("replay", {**REPLAY, "header": "h" * 101}, "option 'header': give at most 100 characters"),
    ],
)
def test_a_job_refuses_a_wrong_option_and_says_what_to_give(job: str, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(Rejected) as refused:
        Job(job).read(options, 1)
    assert str(refused.value).startswith(f"options of {job}: {sentence}")


@pytest.mark.parametrize(
    ("model", "options", "sentence"),
    [
        (BatchOptions, {"queue": "-1"}, "option 'queue': give a number of at least 0, not -1"),
        (BatchOptions, {"archive": ""}, "option 'archive': it is empty"),
        (StreamOptions, {"maxrowspertrigger": "many"}, "option 'maxrowspertrigger': give a whole number, not 'many'"),
        (WriteOptions, {"url": ""}, "option 'url': it is empty"),
        (WriteOptions, {"url": "http://a", "sign": "aws", "token": "t"}, "give token or sign, not both"),
    ],
)
def test_the_data_source_refuses_a_wrong_option_and_says_what_to_give(
    model: Any, options: dict[str, str], sentence: str
) -> None:
    every = {"subject": "orders"} | ({} if model is WriteOptions else {"archive": "/archive"}) | options
    with pytest.raises(ValueError, match="format hourwheel: ") as refused:
        read_options(model, every)
    assert str(refused.value) == f"format hourwheel: {sentence}"
