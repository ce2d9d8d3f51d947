"""Chooses the small files of a table that should become one: those of a day, and later those of a month."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Final, NamedTuple

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from hourwheel_pipeline.lake.data_files import Days, days_of
from hourwheel_pipeline.lake.writing import DAY, MONTH

BY_DAY: Final = timedelta(days=31)
"""Files stay apart by day for this long after their month: most queries for a time are about the last weeks."""


class Merge(NamedTuple):
    """Files of one day or one month. ``apart``: the folder for the files into which they are merged, as for
    ``write``."""

    apart: Mapping[str, str]
    files: list[DataFile]


def merges(table: Table, files: Iterable[DataFile], small_bytes: int, fewest: int, today: date) -> Iterator[Merge]:
    """Yields the files under ``small_bytes`` of each day, or of each month that is long over, if there are at least the
    ``fewest`` of them. Leaves out a file that may have rows of several months, or of days that are unknown."""
    by_month, by_day = dict[date, list[DataFile]](), dict[date, list[DataFile]]()
    months = (today - BY_DAY).replace(day=1)
    for file in files:
        days = days_of(table, file) if file.file_size_in_bytes < small_bytes else None
        if days is None:
            continue
        month = days.first.replace(day=1)
        if month < months and days.last.replace(day=1) == month:
            by_month.setdefault(month, []).append(file)
        elif _of_one(days):
            by_day.setdefault(days.first, []).append(file)
    for apart, small in ((MONTH, by_month), (DAY, by_day)):
        yield from (Merge(apart, found) for found in small.values() if len(found) >= fewest)


def steps(found: Iterable[Merge], most_files: int, most_bytes: int) -> Iterator[Merge]:
    """Joins merges of one kind until they have as many files or bytes as one commit should take."""
    step: Merge | None = None
    for merge in found:
        if step is not None and (step.apart != merge.apart or _is_full(step, most_files, most_bytes)):
            yield step
            step = None
        step = merge if step is None else Merge(step.apart, step.files + merge.files)
    if step is not None:
        yield step


def _of_one(days: Days) -> bool:
    return days.first == days.last


def _is_full(step: Merge, most_files: int, most_bytes: int) -> bool:
    return len(step.files) >= most_files or sum(file.file_size_in_bytes for file in step.files) >= most_bytes
