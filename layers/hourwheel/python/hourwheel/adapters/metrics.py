"""Meters: CloudWatch's embedded metric format in Lambda, totals and a histogram in one process."""

import sys
import threading
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec

from hourwheel.ports import Clock, MeterUnit

_VALUES = 100
"""CloudWatch takes so many values of a metric in one line."""

_STEADY = frozenset({"Accepted", "Delivered", "Settled", "ClaimConflicts"})
"""What nearly every call counts."""

_STEADY_MS = 10_000
"""A line for each call would be log of its own: 170 bytes, as much as a small message. So the steady counts alone are
printed once in so many milliseconds. Lambda may freeze the process before that, and may never thaw it: then the last
seconds of a burst come late, with the next call, or never. A process that is called now and then prints with each call,
as its last line is older than that. Whatever tells of trouble is printed with the call that met it."""


class EmfMeter:
    """``Meter`` that keeps metrics until ``flush``, once per invocation. Thread-safe.

    Each name is one metric with the dimension ``service``, and with no other: CloudWatch takes money for each
    combination.
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
        """Prints what was recorded in one line: sums of counts, of other metrics up to 100 values. Nothing when there
        is nothing, or so little that it can wait for another call."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if not self._kept or (self._kept.keys() <= _STEADY and 0 <= now_ms - self._printed_ms < _STEADY_MS):
                return
            kept, self._kept, self._printed_ms = self._kept, {}, now_ms
        metrics = [{"Name": name, "Unit": unit} for name, (unit, _) in kept.items()]
        directive = {"Namespace": self._namespace, "Dimensions": [["service"]], "Metrics": metrics}
        line = {"_aws": {"Timestamp": now_ms, "CloudWatchMetrics": [directive]}, "service": self._service}
        # With its end in one piece: lines of threads must not mix.
        sys.stdout.write(
            msgspec.json.encode(line | {name: _told(one) for name, (_, one) in kept.items()}).decode() + "\n"
        )
        sys.stdout.flush()


def _told(values: list[float]) -> float | list[float]:
    """One value as itself; of too many those at evenly spaced ranks, the least and the largest among them: they have
    the same percentiles."""
    if len(values) == 1:
        return values[0]
    if len(values) <= _VALUES:
        return values
    ranked = sorted(values)
    return [ranked[rank * (len(ranked) - 1) // (_VALUES - 1)] for rank in range(_VALUES)]


BOUNDS_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)


@dataclass
class Histogram:
    """``counts[k]`` values were at most ``BOUNDS_SECONDS[k]`` and above the bound before; the last are above all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_SECONDS) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.seconds += seconds


class CountingMeter:
    """``Meter`` that sums counts up and sorts times into histograms. Thread-safe."""

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
        """What was recorded in milliseconds under the name, as it is now."""
        with self._lock:
            known = self._times[name]
            return Histogram(list(known.counts), known.seconds)
