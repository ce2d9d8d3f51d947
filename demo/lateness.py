"""Computes the lateness of the boarding calls: time of receipt minus due time."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from demo.boarding import Seen

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
MARGIN_MS = 250.0
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Outage:
    """An outage, from the kill of the server until it listens again."""

    killed_ms: float
    ready_ms: float

    @property
    def seconds(self) -> float:
        return (self.ready_ms - self.killed_ms) / 1_000


@dataclass(frozen=True)
class Lateness:
    p50: float
    p99: float
    max: float


def first_receipts(seen: Iterable[Seen]) -> list[Seen]:
    """Returns the first receipt of each call."""
    first: dict[str, Seen] = {}
    for receipt in sorted(seen, key=lambda receipt: receipt.at_ms):
        first.setdefault(receipt.call, receipt)
    return list(first.values())


def resumed_ms(seen: Iterable[Seen], outage: Outage) -> float:
    """Returns the time of the first receipt after the outage: the gate takes a while to reconnect."""
    return min((receipt.at_ms for receipt in seen if receipt.at_ms >= outage.ready_ms), default=outage.ready_ms)


def split(seen: Sequence[Seen], outage: Outage) -> tuple[list[float], list[float]]:
    """Returns the lateness in milliseconds of the calls that the outage spared, and of those that it hit: the calls due
    from shortly before the kill until shortly after the first receipt that followed."""
    begin_ms, end_ms = outage.killed_ms - MARGIN_MS, resumed_ms(seen, outage) + MARGIN_MS
    spared: list[float] = []
    hit: list[float] = []
    for receipt in seen:
        (hit if begin_ms <= receipt.due_ms <= end_ms else spared).append(receipt.at_ms - receipt.due_ms)
    return spared, hit


def summary(values_ms: Iterable[float]) -> Lateness:
    """Returns percentiles: each is the smallest value that this share of the values does not exceed."""
    ordered = sorted(values_ms)
    if not ordered:
        return Lateness(0.0, 0.0, 0.0)

    def percentile(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 1)

    return Lateness(percentile(0.5), percentile(0.99), round(ordered[-1], 1))


def histogram(values_ms: Iterable[float]) -> list[tuple[str, int]]:
    """Returns counts by upper bound, from the first to the last bound that is not empty."""
    counts = [0] * (len(BOUNDS_MS) + 1)
    for value in values_ms:
        counts[next((index for index, bound in enumerate(BOUNDS_MS) if value <= bound), len(BOUNDS_MS))] += 1
    labels = [f"≤ {_duration(bound)}" for bound in BOUNDS_MS] + [f"> {_duration(BOUNDS_MS[-1])}"]
    filled = [index for index, count in enumerate(counts) if count]
    return list(zip(labels, counts, strict=True))[filled[0] : filled[-1] + 1] if filled else []


def bars(rows: Sequence[tuple[str, int]], *, width: int, plain: bool) -> list[str]:
    """Returns a line for each row. The longest bar is ``width`` cells wide; bars have eighths of a cell unless
    ``plain``."""
    most = max((count for _, count in rows), default=1)
    return [f"{label:>9} {_bar(count / most * width, plain):<{width}} {count:>7,}" for label, count in rows]


def _bar(length: float, plain: bool) -> str:
    if plain:
        return "#" * math.ceil(length)
    whole, eighths = divmod(math.ceil(length * 8), 8)
    return "█" * whole + _EIGHTHS[eighths] * (eighths > 0)


def _duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms // 1_000} s"
