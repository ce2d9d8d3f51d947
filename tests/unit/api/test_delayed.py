"""The function ``delayed`` tends delayed work before anything else, and starts the sweep whatever comes of it."""

import pytest

from hourwheel.api.background.delayed import tending
from hourwheel.errors import Broken, StorageFull, Throttled
from hourwheel.ports.storage import Record, Table
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
    answer = tending(lambda: wheels_at_sweep.append(len(bench.timers.ordered)))(bench.deployment, {}, None)
    assert wheels_at_sweep == [1]
    assert answer == {"started_wheels": 1, "dropped_buckets": 0, "left": 0}


def test_the_sweep_is_started_though_the_delayed_work_fails(bench: Bench) -> None:
    assert isinstance(bench.store, FullLists)
    bench.store.full = True
    started: list[str] = []
    with pytest.raises(StorageFull):
        tending(lambda: started.append("sweep"))(bench.deployment, {}, None)
    assert started == ["sweep"]


@pytest.mark.parametrize("error", [Throttled("busy"), Broken("AccessDenied")])
def test_a_sweep_that_cannot_be_started_is_reported_and_ends_no_delayed_work(
    bench: Bench, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    assert tending(fail)(bench.deployment, {}, None)["started_wheels"] == 1
    assert ("WakesMissed", 1) in bench.meter.metrics
    assert "no sweep could be started" in caplog.text


def test_no_subject_is_read_for_delayed_work(bench: Bench) -> None:
    assert isinstance(bench.store, CallByCall)
    bench.store.calls.clear()
    bench.deployment.sweeper.delayed.tend()
    assert {name for _, name in bench.store.calls} <= {Table.META, "schedule/" + bench.timers.ordered[0][1]}
