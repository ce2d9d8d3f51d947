"""The API counts delayed messages by hour and minute, and shows the wheels of their buckets and the state of the
archive."""

from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.archive.archiver import Archiver
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import WheelOwner, owner_record
from hourwheel.context import Settings
from hourwheel.errors import Rejected
from hourwheel.model.last_runs import REPORT, ReconcileRun
from hourwheel.model.overview import DueCounts, LakeState, LakeTable, ReportState
from hourwheel.model.pulls import RetryLater
from hourwheel.operations.background import DueStepSize
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


def due(
    bench: Bench,
    since_ms: int | None = None,
    until_ms: int | None = None,
    *,
    subject: str | None = None,
    step: DueStepSize = "hour",
) -> DueCounts:
    owner = None if subject is None else bench.deployment.subjects.get(subject)
    return bench.deployment.background.due(owner, since_ms, until_ms, step)


def steps(counts: DueCounts) -> dict[str, int]:
    return {each.at: each.messages for each in counts.steps}


def test_delayed_messages_are_counted_by_the_hour_over_two_years(bench: Bench) -> None:
    bench.send_later("a", "b", delay="90m")
    bench.send_later("c", delay="700d")
    bench.send_later("other", delay="90m", subject="other")
    counts = due(bench, NOON_MS, NOON_MS + 732 * DAY_MS)
    assert steps(counts) == {rfc3339(NOON_MS + HOUR_MS): 3, rfc3339(NOON_MS + 700 * DAY_MS): 1}
    assert (counts.messages, counts.complete) == (4, True)
    assert steps(due(bench, subject="orders")) == {rfc3339(NOON_MS + HOUR_MS): 2}


def test_cancelled_moved_and_sent_messages_and_retries_are_not_counted(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    cancelled, moved, _ = bench.send_later("a", "b", "c", delay="90m")
    bench.deployment.delayed.cancel(cancelled.scheduled_id or "")
    bench.deployment.delayed.reschedule(moved.scheduled_id or "", delay="5h")
    bench.send("now")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[RetryLater(index=0, delay="90m")])
    assert steps(due(bench)) == {rfc3339(NOON_MS + HOUR_MS): 1, rfc3339(NOON_MS + 5 * HOUR_MS): 1}
    bench.turn(3 * 3_600)
    assert steps(due(bench)) == {rfc3339(NOON_MS + 5 * HOUR_MS): 1}


def test_messages_that_are_overdue_count_in_the_first_hour(bench: Bench) -> None:
    bench.send_later("a", delay="90m")
    bench.clock.pass_time(3 * 3_600)
    assert steps(due(bench)) == {rfc3339(NOON_MS + 3 * HOUR_MS): 1}


def test_hours_outside_of_the_span_are_left_out(bench: Bench) -> None:
    for hours in (1, 5, 9):
        bench.send_later("a", delay=f"{hours}h")
    assert steps(due(bench, NOON_MS + 4 * HOUR_MS, NOON_MS + 9 * HOUR_MS)) == {rfc3339(NOON_MS + 5 * HOUR_MS): 1}


def test_the_counters_tell_of_hours_that_are_not_read_yet(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr("hourwheel.operations.background._ROWS", 2)
    for hours in (3, 4, 5):
        for _ in range(2):
            bench.send_later("a", "b", delay=f"{hours}h")
    first = due(bench, NOON_MS)
    assert (first.messages, first.complete) == (12, False)
    assert not due(bench, NOON_MS, subject="orders").complete
    counts = due(bench, NOON_MS, subject="orders")
    assert (counts.messages, counts.complete) == (12, True)


def test_without_a_span_the_total_and_the_next_due_time_are_told(bench: Bench) -> None:
    assert (due(bench).total, due(bench).next_at) == (0, None)
    bench.send_later("a", "b", delay="30d")
    bench.send_later("c", delay="40d")
    bench.send_later("d", delay="20d", subject="other")
    for step in ("hour", "minute"):
        counts = due(bench, subject="orders", step=step)
        assert (counts.messages, counts.total, counts.complete) == (0, 3, True)
        assert counts.next_at == rfc3339(NOON_MS + 30 * DAY_MS)
    assert (due(bench).total, due(bench).next_at) == (4, rfc3339(NOON_MS + 20 * DAY_MS))
    for since_ms, until_ms in ((NOON_MS, None), (None, NOON_MS + DAY_MS)):
        assert (due(bench, since_ms, until_ms).total, due(bench, since_ms, until_ms).next_at) == (None, None)


def test_the_next_due_time_is_that_of_a_message_that_still_waits(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    first, *_ = bench.send_later("a", delay="65m")
    bench.send_later("b", delay="70m")
    bench.send_later("c", delay="95m")
    bench.send_later("d", delay="40d")
    bench.deployment.delayed.cancel(first.scheduled_id or "")
    assert due(bench).next_at == rfc3339(NOON_MS + 70 * MINUTE_MS)
    bench.turn(80 * 60)
    assert (due(bench).total, due(bench).next_at) == (2, rfc3339(NOON_MS + 95 * MINUTE_MS))
    bench.turn(20 * 60)
    assert (due(bench).total, due(bench).next_at) == (1, rfc3339(NOON_MS + 40 * DAY_MS))


def test_a_total_is_incomplete_until_every_row_is_read(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr("hourwheel.operations.background._ROWS", 2)
    for days in (30, 31, 32):
        for _ in range(2):
            bench.send_later("a", "b", delay=f"{days}d")
    first = due(bench, subject="orders")
    assert (first.complete, first.next_at) == (False, rfc3339(NOON_MS + 30 * DAY_MS))
    while not (counts := due(bench, subject="orders")).complete:
        assert counts.total is not None
        assert first.total is not None
        assert counts.total > first.total
        first = counts
    assert counts.total == 12


def test_the_due_time_of_an_hour_with_many_rows_is_its_start(monkeypatch: pytest.MonkeyPatch, bench: Bench) -> None:
    monkeypatch.setattr("hourwheel.delay.lists.due_minutes._ROWS", 3)
    for minutes in (70, 65, 75, 80):
        bench.send_later("a", delay=f"{minutes}m")
    assert due(bench).next_at == rfc3339(NOON_MS + HOUR_MS)


def test_a_total_over_two_years_of_hours_reads_counters_by_the_hundred(bench: Bench) -> None:
    store = bench.store = CallByCall(bench.store)
    deployment = bench.another_process()
    for hour in range(1, 701):
        bench.send_later("a", delay=f"{hour}h", subject="other")
    bench.send_later("far", delay="701h")
    subject = deployment.subjects.get("orders")
    owner = (subject.name, subject.generation)
    total = deployment.background.total(owner)
    assert (total.messages, total.next_at) == (1, rfc3339(NOON_MS + 701 * HOUR_MS))
    store.calls.clear()
    assert deployment.background.total(owner).messages == 1
    assert [verb for verb, _ in store.calls].count("counters") == 8, "701 hours"
    assert len(store.calls) <= 8 + 2 + 2 * 3 + 3, "the counters, the buckets, the wheels of this hour and the next two"


def test_the_minutes_of_an_hour(bench: Bench) -> None:
    first, *_ = bench.send_later("a", delay="61m")
    bench.send_later("b", "c", delay="75m")
    bench.send_later("d", delay="75m", subject="other")
    bench.deployment.delayed.cancel(first.scheduled_id or "")
    hour_ms = NOON_MS + HOUR_MS
    counts = due(bench, hour_ms, step="minute")
    assert (steps(counts), counts.complete) == ({rfc3339(hour_ms + 15 * MINUTE_MS): 3}, True)
    assert steps(due(bench, hour_ms, step="minute", subject="orders")) == {rfc3339(hour_ms + 15 * MINUTE_MS): 2}
    bench.turn(76 * 60)
    assert steps(due(bench, hour_ms, step="minute")) == {}


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "step"),
    [
        (NOON_MS, NOON_MS, "hour"),
        (NOON_MS, NOON_MS - 1, "hour"),
        (NOON_MS, NOON_MS + 734 * DAY_MS, "hour"),
        (NOON_MS, NOON_MS + HOUR_MS + 1, "minute"),
    ],
)
def test_a_span_that_is_empty_or_too_long_is_refused(
    bench: Bench, since_ms: int, until_ms: int, step: DueStepSize
) -> None:
    with pytest.raises(Rejected, match="to must be later than from"):
        due(bench, since_ms, until_ms, step=step)


def test_a_wheel_waits_is_overdue_turns_and_is_gone(bench: Bench) -> None:
    bench.send_later("a", "b", delay="2h")
    (wheel,) = bench.deployment.background.wheels().wheels
    start_ms = NOON_MS + 2 * HOUR_MS
    assert (wheel.state, wheel.messages, wheel.owner) == ("waiting", 2, None)
    assert (wheel.starts_at, wheel.ends_at) == (rfc3339(start_ms), rfc3339(start_ms + HOUR_MS))
    bench.clock.pass_time(2 * 3_600)
    (wheel,) = bench.deployment.background.wheels().wheels
    assert wheel.state == "overdue"
    seen: list[tuple[str, str | None]] = []
    bench.turn(
        60, beside=lambda: seen.extend((each.state, each.owner) for each in bench.deployment.background.wheels().wheels)
    )
    assert seen == [("turning", "bench")]
    bench.turn(2 * 3_600)
    assert bench.deployment.background.wheels().wheels == []


def owned(bench: Bench, **fields: Any) -> str:
    """Stores an owner of the wheel of a bucket that is open now, and returns the state of the wheel."""
    bench.send_later("a", delay="2h")
    bench.clock.pass_time(2 * 3_600)
    bucket = Bucket.at(bench.clock.ms, 60)
    owner_record(bench.deployment.context, bucket).swap(None, WheelOwner(owner="o", **fields))
    (wheel,) = bench.deployment.background.wheels().wheels
    return wheel.state


def test_a_wheel_whose_owner_has_left_is_asleep_until_it_wakes(bench: Bench) -> None:
    assert owned(bench, until_ms=0, wakes_ms=NOON_MS + 3 * HOUR_MS) == "asleep"
    bench.clock.pass_time(3_700)
    assert [wheel.state for wheel in bench.deployment.background.wheels().wheels] == ["overdue"]


def test_a_wheel_whose_owner_died_is_overdue(bench: Bench) -> None:
    assert owned(bench, until_ms=NOON_MS) == "overdue"


def test_the_first_hundred_wheels_are_shown(bench: Bench) -> None:
    for hours in range(101):
        bench.send_later("a", delay=f"{hours + 1}h")
    found = bench.deployment.background.wheels()
    assert (len(found.wheels), found.complete, found.lateness) == (100, False, None)


def test_a_meter_that_keeps_times_tells_how_late_messages_were() -> None:
    meter = CountingMeter()
    for late_ms in (50, 400, 400, 9_999_000):
        meter.record("DispatchLateness", late_ms, unit="Milliseconds")
    lateness = {seconds: count for seconds, count in meter.lateness("DispatchLateness") if count}
    assert lateness == {0.1: 1, 0.5: 2, None: 1}


def test_the_archive_tells_how_far_it_is() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, archive=True))
    bench.send("a")
    assert bench.deployment.background.archive().complete_at is None
    Archiver(bench.deployment.context, bench.deployment.registry, MemoryBlobs()).run(bench.clock.ms + 60_000)
    bench.clock.pass_time(90)
    state = bench.deployment.background.archive()
    assert (state.enabled, state.manifests, state.behind_seconds) == (True, 1, 90.0)
    assert state.complete_at == rfc3339(NOON_MS)
    plain = Bench().deployment.background.archive()
    assert (plain.enabled, plain.manifests, plain.behind_seconds) == (False, 0, None)


class Lake:
    """The files that jobs left, by their paths."""

    serves_report = True

    def __init__(self, **files: bytes) -> None:
        self.files = {f"last-runs/{name}.json": content for name, content in files.items()}

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)


def test_the_archive_tells_what_the_jobs_of_the_pipeline_left() -> None:
    table = {"table": "messages", "rows": 12, "last_manifest": -1, "quarantined": 2, "changed_at": None}
    found = {"found_at": "t", "horizon_at": "t", "findings": {"late": 2}, "errors": 0, "totals": {"accepted": 9}}
    lake = Lake(
        compact=msgspec.json.encode({"tables": [table], "problems": 1}),
        reconcile=msgspec.json.encode(found),
        report=msgspec.json.encode({"made_at": "t", "page": REPORT}),
    )
    bench = Bench(settings=Settings(retry=AT_ONCE, archive=True), lake=lake)
    bench.send("a")
    Archiver(bench.deployment.context, bench.deployment.registry, MemoryBlobs()).run(bench.clock.ms + 60_000)
    state = bench.deployment.background.archive()
    assert state.last_at == rfc3339(NOON_MS)
    assert state.lake == LakeState(
        tables=[LakeTable(table="messages", rows=12, behind=1, quarantined=2, changed_at=None)], problems=1
    )
    assert state.reconciled == msgspec.convert(found, ReconcileRun)
    assert state.report == ReportState(made_at="t", page=None, served=True)


@pytest.mark.parametrize(
    ("page", "serves", "shown", "served"),
    [
        (REPORT, False, None, False),
        ("s3://shop/reports/report.html", True, "s3://shop/reports/report.html", False),
        ("/home/shop/report.html", True, None, False),
        ("../report/report.html", True, None, False),
    ],
)
def test_the_place_of_a_report_is_told_where_it_is_no_path_of_a_machine(
    page: str, serves: bool, shown: str | None, served: bool
) -> None:
    lake = Lake(report=msgspec.json.encode({"made_at": "t", "page": page}))
    lake.serves_report = serves
    state = Bench(lake=lake).deployment.background.archive()
    assert state.report == ReportState(made_at="t", page=shown, served=served)


@pytest.mark.parametrize("lake", [None, Lake(), Lake(compact=b"{", reconcile=b"[]", report=b"{}")])
def test_without_a_lake_or_with_files_of_another_version_the_rest_is_told(lake: Lake | None) -> None:
    state = Bench(lake=lake).deployment.background.archive()
    assert (state.lake, state.reconciled, state.report) == (None, None, None)
    assert (state.manifests, state.last_at) == (0, None)


def test_two_years_of_hours_are_counted_with_few_reads() -> None:
    store = CallByCall(Bench().store)
    bench = Bench(store=store)
    for days in range(0, 720, 3):
        bench.send_later("a", delay=f"{days * 24 + 10}h")
    due(bench, NOON_MS, NOON_MS + 732 * DAY_MS)
    store.calls.clear()
    assert due(bench, NOON_MS, NOON_MS + 732 * DAY_MS).messages == 240
    assert len(store.calls) < 20
