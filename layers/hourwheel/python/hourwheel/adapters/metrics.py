"""Meters: CloudWatch's embedded metric format in Lambda, plain numbers in one process."""

import threading
from collections import defaultdict
from collections.abc import Mapping

from aws_lambda_powertools.metrics import EphemeralMetrics

from hourwheel.ports import MeterUnit

_FIGURES = 99
"""At 100 of one name the formatter prints by itself, and complains when it is flushed with nothing left."""

_Dimensions = tuple[tuple[str, str], ...]


class PowertoolsMeter:
    """``Meter`` that keeps figures until ``flush``, once per invocation. Thread-safe."""

    def __init__(self, *, namespace: str, service: str) -> None:
        self._namespace = namespace
        self._service = service
        self._lock = threading.Lock()
        self._kept: dict[_Dimensions, list[tuple[str, MeterUnit, float]]] = defaultdict(list)

    def record(
        self, name: str, value: float, *, unit: MeterUnit = "Count", dimensions: Mapping[str, str] | None = None
    ) -> None:
        with self._lock:
            self._kept[tuple(sorted((dimensions or {}).items()))].append((name, unit, value))

    def flush(self) -> None:
        """Prints what was recorded: a line for each set of dimensions and 99 figures, none when there is nothing."""
        with self._lock:
            kept, self._kept = self._kept, defaultdict(list)
        batches = (
            (dimensions, figures[at : at + _FIGURES])
            for dimensions, figures in kept.items()
            for at in range(0, len(figures), _FIGURES)
        )
        for dimensions, figures in batches:
            metrics = EphemeralMetrics(namespace=self._namespace, service=self._service)
            for key, text in dimensions:
                metrics.add_dimension(name=key, value=text)
            for name, unit, value in figures:
                metrics.add_metric(name=name, unit=unit, value=value)
            metrics.flush_metrics()


class CountingMeter:
    """``Meter`` that sums up. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[tuple[str, _Dimensions], float] = defaultdict(float)

    def record(
        self, name: str, value: float, *, unit: MeterUnit = "Count", dimensions: Mapping[str, str] | None = None
    ) -> None:
        key = (name, tuple(sorted(dimensions.items())) if dimensions else ())
        with self._lock:
            self._totals[key] += value

    def total(self, name: str, **dimensions: str) -> float:
        with self._lock:
            return self._totals.get((name, tuple(sorted(dimensions.items()))), 0.0)
