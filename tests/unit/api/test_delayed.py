"""The function ``delayed`` tends delayed work before anything else, and starts the sweep whatever comes of it."""

import pytest

from hourwheel.api.background.delayed import tending
from hourwheel.api.background.sweep import sweep
from hourwheel.api.events import Event
from hourwheel.context import Settings
from hourwheel.errors import Broken, StorageFull, Throttled
from hourwheel.ports.storage import Record, Table
from hourwheel.sweep.shares import store_shares
from tests.support import Bench, CallByCall


class FullLists(CallByCall):
    full = False

    def scan(self, table: Table, partition: str, **how: object) -> list[tuple[str, Record]]:
        if self.full:
            raise StorageFull("no room")
        return super().scan(table, partition, **how)


@pytest.fixture
def bench() -> Bench:
    bench = Bench(FullLists(Bench().store))
    bench.send_later("x", delay=100)
    bench.timers.ordered.clear()
    bench.clock.pass_time(120)
    return bench


def test_wheels_are_started_before_the_sweep(bench: Bench) -> None:
    wheels_at_sweep: list[int] = []
    answer = tending(lambda event: wheels_at_sweep.append(len(bench.timers.ordered)))(bench.deployment, {}, None)
    assert wheels_at_sweep == [1]
    assert answer == {"started_wheels": 1, "dropped_buckets": 0, "left": 0}


def test_the_sweep_is_started_though_the_delayed_work_fails(bench: Bench) -> None:
    assert isinstance(bench.store, FullLists)
    bench.store.full = True
    started: list[str] = []
    with pytest.raises(StorageFull):
        tending(lambda event: started.append("sweep"))(bench.deployment, {}, None)
    assert started == ["sweep"]


@pytest.mark.parametrize("error", [Throttled("busy"), Broken("AccessDenied")])
def test_a_sweep_that_cannot_be_started_is_reported_and_ends_no_delayed_work(
    bench: Bench, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: Event) -> None:
        raise error

    assert tending(fail)(bench.deployment, {}, None)["started_wheels"] == 1
    assert ("WakesMissed", 1) in bench.meter.metrics
    assert "no sweep could be started" in caplog.text


def test_no_subject_is_read_for_delayed_work(bench: Bench) -> None:
    assert isinstance(bench.store, CallByCall)
    bench.store.calls.clear()
    bench.deployment.sweeper.delayed.tend()
    assert {name for _, name in bench.store.calls} <= {Table.META, "schedule/" + bench.timers.ordered[0][1]}


def started_sweeps(bench: Bench) -> list[Event]:
    events: list[Event] = []
    tending(events.append)(bench.deployment, {}, None)
    return events


@pytest.mark.parametrize(("stored", "most", "shares"), [(1, 8, 1), (4, 8, 4), (16, 8, 8), (4, 1, 1)])
def test_one_sweep_is_started_for_each_share_and_no_more_than_the_setting_allows(
    bench: Bench, stored: int, most: int, shares: int
) -> None:
    bench.settings = Settings(sweep_shares=most)
    bench.deployment = bench.another_process()
    store_shares(bench.deployment.context, stored)
    events = started_sweeps(bench)
    assert events == ([{}] if shares == 1 else [{"share": number, "shares": shares} for number in range(shares)])
    names = [f"s{number}" for number in range(20)]
    for name in names:
        bench.deployment.subjects.put(name)
    swept = [sweep(bench.deployment, event, None)["subjects"] for event in events]
    assert sum(swept) == len(names) + 1


def test_the_number_of_shares_is_read_again_after_five_minutes(bench: Bench) -> None:
    bench.settings = Settings(sweep_shares=8)
    bench.deployment = bench.another_process()
    assert len(started_sweeps(bench)) == 1
    store_shares(bench.deployment.context, 4)
    bench.clock.pass_time(240)
    assert len(started_sweeps(bench)) == 1
    bench.clock.pass_time(60)
    assert len(started_sweeps(bench)) == 4
    store_shares(bench.deployment.context, 2)
    assert len(started_sweeps(bench)) == 2


def test_a_share_that_cannot_be_started_holds_up_no_other(bench: Bench) -> None:
    bench.settings = Settings(sweep_shares=4)
    bench.deployment = bench.another_process()
    store_shares(bench.deployment.context, 4)
    started: list[int] = []

    def start(event: Event) -> None:
        if event["share"] == 1:
            raise Throttled("busy")
        started.append(event["share"])

    tending(start)(bench.deployment, {}, None)
    assert started == [0, 2, 3]
    assert ("WakesMissed", 1) in bench.meter.metrics


@pytest.mark.parametrize("event", [{"share": 2, "shares": 2}, {"share": -1, "shares": 2}, {"share": "0"}])
def test_a_share_that_does_not_exist_fails_the_invocation(bench: Bench, event: Event) -> None:
    with pytest.raises(ValueError, match="there is no share"):
        sweep(bench.deployment, event, None)
