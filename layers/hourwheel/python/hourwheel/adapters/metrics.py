"""Records metrics: in CloudWatch's embedded metric format in Lambda, as totals and a histogram in one process."""

import sys
import threading
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from hourwheel.ports.machine import Clock, MeterUnit

_VALUES = 100
"""CloudWatch takes at most this many values of a metric in one line."""

_STEADY = frozenset({"Accepted", "Delivered", "Settled", "ClaimConflicts"})
"""Metrics that nearly every call records."""

_STEADY_MS = 10_000
"""A line that has only steady counts is printed at most once in this time, because its 170 bytes in the log are as much
as a small message. Lambda may freeze the process before the next line: then the counts of the last seconds of a burst
come with the next call, or never, if Lambda does not thaw the process. A process that is called rarely prints with each
call, as its last line is older than this. Any other metric is printed with the call that recorded it."""


class EmfMeter:
    """Implements ``Meter`` for CloudWatch: keeps metrics until ``flush`` prints them, once per invocation. Thread-safe.

    Each name is one metric, with ``service`` as its only dimension, because CloudWatch bills each combination.
    """

    def __init__(self, *, namespace: str, service: str, clock: Clock) -> None:
        self._namespace = namespace
        self._service = service
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[MeterUnit, list[float]]] = {}
        self._printed_ms = 0

    def record(self, name: str, value: float, *, unit: MeterUnit = "Count") -> None:
        with self._lock:
            values = self._kept.setdefault(name, (unit, []))[1]
            if unit == "Count" and values:
                values[0] += value
            else:
                values.append(value)

    def flush(self) -> None:
        """Prints the recorded metrics in one line: sums of counts, and up to 100 values of every other metric. Prints
        nothing when there are none, or only steady counts that can wait for another call."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if not self._kept or (self._kept.keys() <= _STEADY and 0 <= now_ms - self._printed_ms < _STEADY_MS):
                return
            kept, self._kept, self._printed_ms = self._kept, {}, now_ms
        metrics = [{"Name": name, "Unit": unit} for name, (unit, _) in kept.items()]
        directive = {"Namespace": self._namespace, "Dimensions": [["service"]], "Metrics": metrics}
        line = {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [directive]}, "service": self._service}
        # In one piece with its line end, so that lines of several threads do not mix.
        sys.stdout.write(
            msgspec.json.encode(line | {name: _sampled(values) for name, (_, values) in kept.items()}).decode() + "\n"
        )
        sys.stdout.flush()


def _sampled(values: list[float]) -> float | list[float]:
    """Returns a single value as itself. Of more than ``_VALUES`` values returns those at evenly spaced ranks, with the
    smallest and the largest, so that their percentiles are nearly those of all values."""
    if len(values) == 1:
        return values[0]
    if len(values) <= _VALUES:
        return values
    ranked = sorted(values)
    return [ranked[rank * (len(ranked) - 1) // (_VALUES - 1)] for rank in range(_VALUES)]


BOUNDS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""The bounds of histograms: from a lateness that a person does not notice to that after a server was down."""


@dataclass
class Histogram:
    """A histogram of times. ``counts[k]`` counts the times up to ``BOUNDS_SECONDS[k]`` and above the bound before it;
    the last count is that of the times above all bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.seconds += seconds


class CountingMeter:
    """Implements ``Meter`` for one process: sums up counts, and sorts times into histograms. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, float] = defaultdict(float)
        self._times: dict[str, Histogram] = defaultdict(Histogram)

    def record(self, name: str, value: float, *, unit: MeterUnit = "Count") -> None:
        with self._lock:
            if unit == "Milliseconds":
                self._times[name].add(value / 1_000)
            else:
                self._totals[name] += value

    def total(self, name: str) -> float:
        with self._lock:
            return self._totals.get(name, 0.0)

    def times(self, name: str) -> Histogram:
        """Returns a copy of the histogram of the times that were recorded in milliseconds under the name."""
        with self._lock:
            histogram = self._times[name]
            return Histogram(list(histogram.counts), histogram.seconds)

    def lateness(self, name: str) -> list[tuple[float | None, int]]:
        """Returns for each bound in seconds the number of times up to it and above the bound before; the last entry,
        without a bound, has the number of times above all bounds."""
        return list(zip((*BOUNDS_SECONDS, None), self.times(name).counts, strict=True))
