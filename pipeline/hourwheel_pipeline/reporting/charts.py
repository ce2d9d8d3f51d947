"""Draws charts of values by steps of time, as SVG: lines, or bars for steps that are independent of each other."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from hourwheel_pipeline.reporting.markup import Content, Markup, table, tag
from hourwheel_pipeline.reporting.steps import HOUR_MS, MINUTE_MS, name_of

_WIDTH, _HEIGHT = 720, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 8, 8, 24
COLOURS = 7
"""One for the subject, and one for each group that is drawn."""

# A longer table is slow to open; the JSON has all.
_ROWS = 200


class Series(NamedTuple):
    """``points``: (Unix milliseconds, value), in order. ``colour``: its number; those of one group are the same in all
    charts of a report. ``dashed``: tells it from another line of its colour."""

    name: str
    points: Sequence[tuple[int, float]]
    colour: int = 0
    dashed: bool = False

    @property
    def style(self) -> str:
        """The CSS classes of the series."""
        return f"s{self.colour % COLOURS}{' dashed' * self.dashed}"


def count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def duration(ms: float) -> str:
    """Returns a duration with the largest unit that it reaches."""
    for unit, size in (("d", 24 * HOUR_MS), ("h", HOUR_MS), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.3g} ms"


def moment(ms: int, step_ms: int = MINUTE_MS) -> str:
    """Returns a time in UTC, with seconds if steps are shorter than a minute."""
    form = "%Y-%m-%d %H:%M" if step_ms >= MINUTE_MS else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime(form)


def chart(
    title: str,
    series: Sequence[Series],
    *,
    step_ms: int = HOUR_MS,
    form: Callable[[float], str] = count,
    bars: bool = False,
) -> Markup:
    """Returns a figure with a legend and a table of its numbers; an empty string if no series has points."""
    drawn = [one for one in series if one.points]
    if not drawn:
        return Markup()
    times = [at for one in drawn for at, _ in one.points]
    scale = _Scale(min(times), max(times), step_ms, _ceiling(max(value for one in drawn for _, value in one.points)))
    marks = (_bars(one, scale) if bars else _line(one, scale) for one in drawn)
    picture = tag(
        "svg",
        *_axes(scale, form),
        *marks,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"{title}: {', '.join(one.name for one in drawn)}. The numbers follow as a table.",
    )
    legend = tag("ul", *map(_key, drawn), class_="legend")
    return tag("figure", tag("figcaption", title), picture, legend, _numbers(title, drawn, form, step_ms))


class _Scale(NamedTuple):
    """The scale of a chart. ``last_ms``: the beginning of the last step."""

    start_ms: int
    last_ms: int
    step_ms: int
    top: float

    @property
    def end_ms(self) -> int:
        return self.last_ms + self.step_ms

    def x(self, at_ms: int) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (at_ms - self.start_ms) / (self.end_ms - self.start_ms), 1)

    def middle(self, at_ms: int) -> float:
        """Returns the middle of the step that begins at ``at_ms``."""
        return self.x(at_ms + self.step_ms // 2)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.top, 1)


def _ceiling(value: float) -> float:
    """Returns the next number from ``value`` on that is 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(value))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= value)


def _axes(scale: _Scale, form: Callable[[float], str]) -> list[Markup]:
    axes = []
    for share in (0.0, 0.5, 1.0):
        value, right = scale.top * share, _WIDTH - _RIGHT
        y = scale.y(value)
        axes.append(tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid"))
        axes.append(tag("text", form(value), x=_LEFT - 6, y=y + 4, text_anchor="end"))
    ends = ((scale.start_ms, _LEFT, "start"), (scale.end_ms, _WIDTH - _RIGHT, "end"))
    times = [(moment(at, scale.step_ms), x, anchor) for at, x, anchor in ends]
    return axes + [tag("text", text, x=x, y=_HEIGHT - 6, text_anchor=anchor) for text, x, anchor in times]


def _line(series: Series, scale: _Scale) -> Markup:
    """Returns a line through all points; a dot if there is only one."""
    points = [(scale.middle(time_ms), scale.y(value)) for time_ms, value in series.points]
    if len(points) == 1:
        mark = tag("circle", cx=points[0][0], cy=points[0][1], r=2)
    else:
        mark = tag("polyline", points=" ".join(f"{x},{y}" for x, y in points))
    return tag("g", mark, class_=f"series {series.style}")


def _bars(series: Series, scale: _Scale) -> Markup:
    base = scale.y(0)
    bars = []
    for time_ms, value in series.points:
        left, top = scale.x(time_ms), scale.y(value)
        width = max(1.0, round(scale.x(time_ms + scale.step_ms) - left - 0.5, 1))
        bars.append(tag("rect", x=left, y=top, width=width, height=round(base - top, 1)))
    return tag("g", *bars, class_=f"bars {series.style}")


def _key(series: Series) -> Markup:
    return tag("li", tag("span", class_=f"key {series.style}", aria_hidden="true"), series.name)


def _numbers(title: str, series: Sequence[Series], form: Callable[[float], str], step_ms: int) -> Markup:
    by_time: dict[int, dict[str, float]] = {}
    for one in series:
        for at, value in one.points:
            by_time.setdefault(at, {})[one.name] = value
    latest = sorted(by_time, reverse=True)[:_ROWS]
    names = [one.name for one in series]
    rows: list[list[Content]] = [
        [moment(at, step_ms), *(form(by_time[at][name]) if name in by_time[at] else "" for name in names)]
        for at in latest
    ]
    return tag("details", tag("summary", "Numbers"), table(title, [f"{name_of(step_ms)} (UTC)", *names], rows))
