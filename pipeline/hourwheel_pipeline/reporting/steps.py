"""Divides time into steps: a chart has one point for each step, and no more steps than a person can read."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, TypeAlias

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS

STEPS_MS: Final = (
    *(count * SECOND_MS for count in (1, 2, 5, 15)),
    *(count * MINUTE_MS for count in (1, 2, 5, 15)),
    HOUR_MS,
    DAY_MS,
)

MOST_POINTS: Final = 240
"""The points of a chart with more would be closer together than a line is wide."""

Points: TypeAlias = Sequence[tuple[int, float]]
Between: TypeAlias = Literal["nothing", "the last", "unknown"]
"""The value of a step without a point: 0, that of the step before, or unknown."""


def step_for(span_ms: int) -> int:
    """Returns the finest step that divides the span into no more points than can be read."""
    return next((step for step in STEPS_MS if span_ms <= step * MOST_POINTS), DAY_MS)


def name_of(step_ms: int) -> str:
    """Returns the name of a step, as in "messages per hour"."""
    for unit, size in (("day", DAY_MS), ("hour", HOUR_MS), ("minute", MINUTE_MS)):
        if step_ms >= size:
            return unit if step_ms == size else f"{step_ms // size} {unit}s"
    return "second" if step_ms == SECOND_MS else f"{step_ms // SECOND_MS} seconds"


def spread(points: Points, start_ms: int, end_ms: int, step_ms: int, between: Between) -> Points:
    """Returns a point for each step from ``start_ms`` to ``end_ms``; ``between`` says which value a step without a
    point has. Returns the ``points`` unchanged if that is unknown."""
    if not points or between == "unknown":
        return points
    values, last, filled = dict(points), 0.0, []
    for at in range(start_ms, end_ms + 1, step_ms):
        last = values.get(at, 0.0 if between == "nothing" else last)
        filled.append((at, last))
    return filled


def gathered(points: Points, step_ms: int, join: Callable[[Iterable[float]], float]) -> Points:
    """Returns the points of a coarser step: each is the ``join`` of the points within it, in order."""
    within: dict[int, list[float]] = {}
    for at, value in points:
        within.setdefault(at // step_ms * step_ms, []).append(value)
    return [(at, join(values)) for at, values in sorted(within.items())]
