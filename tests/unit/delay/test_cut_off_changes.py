"""Cancels and moves that are cut off: the next caller who looks, or the sweeper, finishes a change that was stored."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.delay.pending_changes import CHANGES
from hourwheel.errors import Unavailable
from hourwheel.ports.storage import Table
from hourwheel.times import rfc3339
from tests.support import Bench
from tests.unit.delay.test_changes import Failing, later
from tests.unit.delay.test_waiting import bodies


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("verb", ["cancel", "move"])
def test_a_request_that_is_cut_off_anywhere_is_finished_when_it_is_repeated(verb: str, effect: bool) -> None:
    for cut in range(1, 40):
        store = Failing(effect=effect)
        bench = Bench(store)
        (one,) = later(bench, "a", delay="20h")
        at = rfc3339(bench.clock.ms + 3_600_000 * 30)

        def ask(bench: Bench = bench, one: str = one, at: str = at) -> str:
            return (
                bench.deployment.delayed.cancel(one)
                if verb == "cancel"
                else bench.deployment.delayed.reschedule(one, deliver_at=at)
            ).state

        store.count, store.fails_at = 0, cut
        try:
            ask()
            finished = True
        except Unavailable:
            finished = False
        store.fails_at = 1 << 60
        if cut % 2:
            bench.deployment.sweeper.sweep()
        bench = Bench(store, bench.blobs, bench.clock, timers=bench.timers)
        assert ask(bench) == ("cancelled" if verb == "cancel" else "moved")
        bench.turn(3_600 * 29.99)
        bench.deployment.sweeper.sweep()  # a timer that was cut off is the sweeper's to order
        bench.turn(3_600)
        assert bodies(bench) == ([] if verb == "cancel" else ["a"])
        if finished:
            return
    raise AssertionError("it never finished")


def test_a_move_that_nobody_asks_for_again_is_finished_by_the_sweeper() -> None:
    store = Failing()
    bench = Bench(store)
    (one,) = later(bench, "a", delay="20h")
    at = rfc3339(bench.clock.ms + 3_600_000)
    store.count = 0
    bench.deployment.delayed.reschedule(one, deliver_at=at)
    calls = store.count
    for cut in range(1, calls):
        store = Failing()
        bench = Bench(store)
        (one,) = later(bench, "a", delay="20h")
        store.count, store.fails_at = 0, cut
        with pytest.raises(Unavailable):
            bench.deployment.delayed.reschedule(one, deliver_at=at)
        store.fails_at = 1 << 60
        bench.deployment.sweeper.sweep()
        bench.turn(86_400)
        assert bodies(bench) == ["a"], cut


def test_a_bucket_stays_until_the_moves_out_of_it_are_finished() -> None:
    store = Failing()
    bench = Bench(store)
    (one,) = later(bench, "a", delay="5s")
    at = rfc3339(bench.clock.ms + 86_400_000 * 3)
    store.count = 0
    bench.deployment.delayed.reschedule(one, deliver_at=at)
    whole = store.count
    for cut in range(4, whole):
        store = Failing()
        bench = Bench(store)
        (one,) = later(bench, "a", delay="5s")
        store.count, store.fails_at = 0, cut
        with pytest.raises(Unavailable):
            bench.deployment.delayed.reschedule(one, deliver_at=at)
        store.fails_at = 1 << 60
        bench.turn(7_200)
        came = bodies(bench)
        bench.clock.pass_time(86_400)
        bench.deployment.sweeper.sweep()
        bench.turn(3 * 86_400)
        bench.deployment.sweeper.sweep()
        bench.turn(60)
        assert came + bodies(bench) == ["a"], cut


def cut_off_cancels(effect: bool, delay: str) -> list[tuple[Bench, str, bool]]:
    """Yields a cancel for each store call at which it can be cut off: bench, id, and whether the request was stored."""
    found = []
    for cut in range(1, 40):
        store = Failing(effect=effect)
        bench = Bench(store)
        (one,) = later(bench, "a", delay=delay)
        bench.turn(30)
        bucket = Bucket.at(bench.clock.ms, 60)
        store.count, store.fails_at = 0, cut
        finished = True
        try:
            bench.deployment.delayed.cancel(one)
        except Unavailable:
            finished = False
        store.fails_at = 1 << 60
        if finished:
            return found
        requested = any(store.inner.scan(Table.SCHEDULE, f"changes/{name}", limit=1) for name in names_around(bucket))
        found.append((Bench(store, bench.blobs, bench.clock, timers=bench.timers), one, requested))
    raise AssertionError("it never finished")


def names_around(bucket: Bucket) -> list[str]:
    return [bucket.name, bucket.following.name]


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("delay", ["20m", "80m"])
@pytest.mark.parametrize(
    "looks",
    [lambda bench, _: bench.deployment.sweeper.sweep(), lambda bench, one: bench.deployment.delayed.get(one)],
    ids=["by the sweeper", "by whoever looks"],
)
def test_a_cancel_that_is_cut_off_and_never_repeated_is_finished(
    looks: Callable[[Bench, str], object], delay: str, effect: bool
) -> None:
    cases = cut_off_cancels(effect, delay)
    assert {requested for _, _, requested in cases} == {False, True}
    for bench, one, requested in cases:
        looks(bench, one)
        bench.turn(60)  # a wheel was called that has to publish the rows that it has read
        looks(bench, one)
        assert bench.deployment.delayed.get(one).state == ("cancelled" if requested else "waiting")
        bench.turn(7_200)
        bench.deployment.sweeper.sweep()
        bench.turn(60)
        assert bodies(bench) == ([] if requested else ["a"])
        assert bench.deployment.delayed.get(one).state == ("cancelled" if requested else "dispatched")
        assert bench.store.scan(Table.META, CHANGES, limit=1) == []


@pytest.mark.parametrize("effect", [False, True])
def test_after_its_time_a_cancel_that_was_cut_off_is_decided_by_whoever_looks(effect: bool) -> None:
    for bench, one, _ in cut_off_cancels(effect, "20m"):
        bench.turn(7_200)
        with suppress(Unavailable):
            bench.deployment.delayed.get(one)
        bench.turn(5)
        state = bench.deployment.delayed.get(one).state
        assert (state, bodies(bench)) in (("cancelled", []), ("dispatched", ["a"]))
