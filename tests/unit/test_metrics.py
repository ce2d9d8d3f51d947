"""Meters print the right metrics in bounded lines, and each verb counts its own."""

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.metrics import BOUNDS_SECONDS, CountingMeter, EmfMeter
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.context import Settings
from hourwheel.errors import OutcomeUnknown, Throttled
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Counter
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.system import SystemIds
from tests.support import AT_ONCE, Bench, CallByCall, HandClock, ListMeter

Printed = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def meter(clock: HandClock) -> EmfMeter:
    return EmfMeter(namespace="Hourwheel", service="cell-7", clock=clock)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return lambda: [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_line_is_in_the_embedded_metric_format(meter: EmfMeter, clock: HandClock, printed: Printed) -> None:
    meter.record("Dispatched", 3)
    meter.record("Dispatched", 4)
    meter.record("DispatchLateness", 120, unit="Milliseconds")
    meter.record("DispatchLateness", 80, unit="Milliseconds")
    meter.flush()
    assert printed() == [
        {
            "_aws": {
                "Timestamp": clock.ms,
                "CloudWatchMetrics": [
                    {
                        "Namespace": "Hourwheel",
                        "Dimensions": [["service"]],
                        "Metrics": [
                            {"Name": "Dispatched", "Unit": "Count"},
                            {"Name": "DispatchLateness", "Unit": "Milliseconds"},
                        ],
                    }
                ],
            },
            "service": "cell-7",
            "Dispatched": 7,
            "DispatchLateness": [120, 80],
        }
    ]


def test_nothing_recorded_prints_nothing(meter: EmfMeter, printed: Printed) -> None:
    meter.flush()
    meter.record("Faults", 1)
    meter.flush()
    meter.flush()
    assert len(printed()) == 1


def test_steady_counts_are_printed_together_once_in_ten_seconds(
    meter: EmfMeter, clock: HandClock, printed: Printed
) -> None:
    for _ in range(1_000):
        meter.record("Accepted", 2)
        meter.flush()
        clock.ms += 100
    lines = printed()
    assert [line["Accepted"] for line in lines] == [2, *[200] * 9]
    assert sum(len(json.dumps(line)) for line in lines) / 1_000 < 3, "bytes a call"


def test_a_call_now_and_then_is_printed_at_once(meter: EmfMeter, clock: HandClock, printed: Printed) -> None:
    for _ in range(3):
        meter.record("Delivered", 1)
        meter.flush()
        clock.ms += 10_000
    assert len(printed()) == 3


def test_trouble_is_printed_at_once_with_all_that_was_kept(meter: EmfMeter, printed: Printed) -> None:
    meter.record("Settled", 1)
    meter.flush()
    meter.record("Settled", 5)
    meter.flush()
    meter.record("Throttles", 1)
    meter.flush()
    assert [(line["Settled"], line.get("Throttles")) for line in printed()] == [(1, None), (5, 1)]


def test_many_values_keep_their_percentiles_in_one_line(meter: EmfMeter, printed: Printed) -> None:
    rng = Random(7)
    values = sorted(round(rng.expovariate(1 / 200)) for _ in range(5_000))
    for value in values:
        meter.record("DispatchLateness", value, unit="Milliseconds")
    meter.flush()
    (line,) = printed()
    told = line["DispatchLateness"]
    assert (len(told), told[0], told[-1]) == (100, values[0], values[-1])
    for percent in (50, 90, 99):
        assert told[percent - 1] == pytest.approx(values[percent * 50 - 1], rel=0.05)


def test_a_counting_meter_sums_counts_and_sorts_times() -> None:
    meter = CountingMeter()
    meter.record("Accepted", 2)
    meter.record("Accepted", 3)
    for late_ms in (99, 100, 101, 7_200_000):
        meter.record("DispatchLateness", late_ms, unit="Milliseconds")
    assert (meter.total("Accepted"), meter.total("Settled")) == (5, 0)
    times = meter.times("DispatchLateness")
    assert [times.counts[0], times.counts[1], times.counts[-1]] == [2, 1, 1], "a bound belongs to what is below it"
    assert (len(times.counts), sum(times.counts)) == (len(BOUNDS_SECONDS) + 1, 4)
    assert times.seconds == pytest.approx(7_200.3)


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    store = MemoryStore()
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    return Bench(CallByCall(store) if request.param == "call by call" else store, settings=settings)


def counted(bench: Bench) -> dict[str, float]:
    """Returns the counts since the last call of this function."""
    found: dict[str, float] = {}
    for name, value in bench.meter.metrics:
        found[name] = found.get(name, 0) + value
    bench.meter.metrics.clear()
    return found


def swept(bench: Bench) -> dict[str, float]:
    """Sweeps, and returns what the sweep counted beside its time."""
    counted(bench)
    bench.deployment.sweeper.sweep()
    found = counted(bench)
    assert found.pop("SweepSeconds") >= 0
    return found


def test_messages_are_counted_when_they_are_accepted_delivered_and_settled(bench: Bench) -> None:
    bench.send("a", "b")
    bench.send_later("c", delay="1h")
    assert counted(bench) == {"Accepted": 3}
    (pull,) = bench.pull()
    assert counted(bench) == {"Delivered": 2}
    bench.settle(pull, extend_seconds=60)
    assert counted(bench) == {}
    bench.settle(pull, ack=[0])
    assert counted(bench) == {"Settled": 1}
    bench.settle(pull, ack=[0])
    assert counted(bench) == {}
    bench.settle(pull)
    assert counted(bench) == {"Settled": 1}
    bench.settle(pull)
    assert counted(bench) == {}


def test_a_batch_that_is_sent_again_is_accepted_once(bench: Bench) -> None:
    for _ in range(2):
        bench.deployment.produce("orders", [NewMessage(body="x")], IdempotencyKey("k", b"d"))
    assert counted(bench) == {"Accepted": 1}


def test_messages_that_go_to_a_dead_log_are_counted(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing", max_attempts=1)
    bench.send("a", "b", "c")
    (pull,) = bench.pull(lease=30)
    counted(bench)
    bench.settle(pull, ack=[], dead=[0])
    assert counted(bench) == {"Settled": 1, "DeadLetters": 1}
    bench.settle(pull, ack=[], retry=[1])
    assert counted(bench) == {"Settled": 1, "DeadLetters": 1}
    bench.clock.pass_time(31)
    assert swept(bench) == {"EndedLeases": 1}
    bench.pull(lease=30)
    bench.clock.pass_time(31)
    assert swept(bench) == {"DeadLetters": 1, "EndedLeases": 1}, "alone, an ended lease counts an attempt"


def test_a_retry_is_no_dead_letter(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    counted(bench)
    bench.settle(pull, retry=[0])
    assert counted(bench) == {"Settled": 1}


def test_holes_are_counted_as_they_are_filled(bench: Bench) -> None:
    log = bench.deployment.context.log(bench.deployment.subjects.put("orders").log(0))
    log.reserve(1)
    log.reserve(1)
    bench.send("a")
    bench.clock.pass_time(2)
    assert bench.bodies() == ["a"]
    assert counted(bench)["HolesFilled"] == 2
    assert bench.bodies(group="audit") == ["a"]
    assert "HolesFilled" not in counted(bench)


class Busy(MemoryStore):
    """Fails on its first calls."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def counter(self, counter: str) -> Counter:
        if self.errors:
            raise self.errors.pop()
        return super().counter(counter)


def test_each_throttled_call_is_counted_and_no_other_trouble() -> None:
    meter = ListMeter()
    store = Busy(Throttled("slow down"), OutcomeUnknown("no answer"), Throttled("slow down"))
    RetryingStore(store, HandClock(), SystemIds(), meter=meter).counter("log")
    assert meter.metrics == [("Throttles", 1), ("Throttles", 1)]
