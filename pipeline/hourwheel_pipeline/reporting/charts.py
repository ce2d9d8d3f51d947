"""Writes charts as data that the script of the page draws, each with a table of its numbers, which needs no script."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from hourwheel_pipeline.reporting.markup import Content, Markup, table, tag
from hourwheel_pipeline.reporting.steps import HOUR_MS, MINUTE_MS, name_of

Unit: TypeAlias = Literal["count", "ms"]
"""The unit of values, in the words of the script ``scales.js``."""

# A longer table is slow to open; the JSON has all.
_ROWS = 200


class Series(NamedTuple):
    """The values of one line, or of the bars, of a chart. ``points``: (Unix milliseconds, value), in order. ``colour``:
    the number of its colour; a group has one colour in all charts of a report. ``dashed``: tells it from another line
    of its colour."""

    name: str
    points: Sequence[tuple[int, float]]
    colour: int = 0
    dashed: bool = False


def count(value: float) -> str:
    return f"{value:,.0f}".replace(",", "\u202f")


def duration(ms: float) -> str:
    """Returns a duration with the largest unit that it reaches."""
    for unit, size in (("d", 24 * HOUR_MS), ("h", HOUR_MS), ("min", 60_000), ("s", 1_000)):
        if ms >= size:
            return f"{ms / size:.3g} {unit}"
    return f"{ms:.3g} ms"


_FORMS: Mapping[Unit, Callable[[float], str]] = {"count": count, "ms": duration}


def moment(ms: int, step_ms: int = MINUTE_MS) -> str:
    """Returns a time in UTC, with seconds if steps are shorter than a minute."""
    form = "%Y-%m-%d %H:%M" if step_ms >= MINUTE_MS else "%Y-%m-%d %H:%M:%S"
    return datetime.fromtimestamp(ms // 1_000, UTC).strftime(form)


def line_chart(
    title: str, series: Sequence[Series], *, step_ms: int, span: tuple[int, int], unit: Unit = "count"
) -> Markup:
    """Returns a chart of lines over the ``span`` of time, in Unix milliseconds; an empty string if no series has
    points. The points of a series are ``step_ms`` apart."""
    drawn = [line for line in series if line.points]
    if not drawn:
        return Markup()
    options = {"from": span[0], "to": span[1], "series": [line._asdict() for line in drawn]}
    return _chart(title, options, drawn, step_ms, unit)


def bar_chart(title: str, series: Series, *, step_ms: int) -> Markup:
    """Returns a chart of bars, each ``step_ms`` wide; an empty string without points."""
    if not series.points:
        return Markup()
    bars = [{"at": at, "end": at + step_ms, "value": value} for at, value in series.points]
    return _chart(title, {"bars": bars, "name": series.name}, [series], step_ms, "count")


def _chart(title: str, options: Mapping[str, Any], drawn: Sequence[Series], step_ms: int, unit: Unit) -> Markup:
    shared = {"title": title, "stepMs": step_ms, "unit": unit, "utc": True, "table": False}
    data = msgspec.json.encode({**shared, **options}).decode()
    return tag("div", _numbers(title, drawn, _FORMS[unit], step_ms), class_="charted", data_chart=data)


def _numbers(title: str, series: Sequence[Series], form: Callable[[float], str], step_ms: int) -> Markup:
    by_time: dict[int, dict[str, float]] = {}
    for line in series:
        for at, value in line.points:
            by_time.setdefault(at, {})[line.name] = value
    latest = sorted(by_time, reverse=True)[:_ROWS]
    names = [line.name for line in series]
    rows: list[list[Content]] = [
        [moment(at, step_ms), *(form(by_time[at][name]) if name in by_time[at] else "" for name in names)]
        for at in latest
    ]
    summary = tag("summary", f"Numbers: {title}")
    return tag("details", summary, table(title, [f"{name_of(step_ms)} (UTC)", *names], rows))
