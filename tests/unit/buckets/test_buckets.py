"""A time lies in one hour bucket; buckets have names, and their registration orders a timer."""

import pytest

from hourwheel.buckets.buckets import LEAD_MS, Bucket, bucket_record, buckets, register, reserve_in, reserve_open
from hourwheel.context import Context
from hourwheel.errors import Broken, Unavailable
from tests.support import NOON_MS, Bench

HOUR_MS = 3_600_000
TOMORROW = Bucket.at(NOON_MS + 24 * HOUR_MS, 60)


@pytest.fixture
def context() -> Context:
    return Bench().deployment.context


@pytest.mark.parametrize("minutes", [5, 60])
def test_a_bucket_begins_at_a_multiple_of_its_length_and_ends_where_the_next_begins(minutes: int) -> None:
    bucket = Bucket.at(NOON_MS + 1, minutes)
    assert bucket.start_ms % (minutes * 60_000) == 0
    assert bucket.start_ms <= NOON_MS + 1 < bucket.end_ms
    assert bucket.following == Bucket.at(bucket.end_ms, minutes)


def test_names_of_buckets_and_of_their_logs_name_the_bucket() -> None:
    bucket = Bucket(NOON_MS, 60, 7)
    assert Bucket.parse(bucket.name) == bucket
    assert Bucket.of_log(bucket.log) == bucket


@pytest.mark.parametrize("name", ["", "1763640000000", "1763640000000-60", "1763640000000-60/7", "x-60/000"])
def test_another_text_is_not_the_name_of_a_bucket(name: str) -> None:
    with pytest.raises(ValueError, match="is not the name of a bucket"):
        Bucket.parse(name)


def test_names_sort_by_time() -> None:
    names = [Bucket(start_ms, 60).name for start_ms in (999_999_960_000, NOON_MS, NOON_MS + HOUR_MS)]
    assert names == sorted(names)


def test_a_registered_bucket_is_listed_and_has_one_timer_shortly_before_it_begins() -> None:
    bench = Bench()
    for _ in range(2):
        register(bench.another_process().context, TOMORROW)
    context = bench.deployment.context
    assert [bucket for bucket, _ in buckets(context)] == [TOMORROW]
    assert bench.timers.ordered == [(TOMORROW.start_ms - LEAD_MS, TOMORROW.name)]


def test_a_bucket_whose_wheel_should_run_already_gets_no_timer() -> None:
    bench = Bench()
    register(bench.deployment.context, Bucket.at(NOON_MS, 60))
    assert bench.timers.ordered == []


@pytest.mark.parametrize("error", [Unavailable("no answer"), Broken("no rights")])
def test_a_timer_that_cannot_be_ordered_fails_no_caller(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(when_ms: int, bucket: str) -> None:
        raise error

    bench = Bench()
    monkeypatch.setattr(bench.timers, "at", refuse)
    register(bench.deployment.context, TOMORROW)
    assert bucket_record(bench.deployment.context, TOMORROW).load() is not None
    assert ("WakesMissed", 1) in bench.meter.metrics


def test_a_row_for_a_sealed_bucket_is_reserved_in_the_first_following_one_that_is_not(context: Context) -> None:
    for bucket in (TOMORROW, TOMORROW.following):
        context.log(bucket.log).seal()
    taken, reservation = reserve_open(context, TOMORROW, 3)
    assert taken == TOMORROW.following.following
    assert (reservation.log, reservation.row_no) == (taken.log, 0)


def test_a_row_of_another_log_is_reserved_there(context: Context) -> None:
    assert reserve_in(context, "orders~1/0", 3).log == "orders~1/0"
    assert [bucket for bucket, _ in buckets(context)] == []
