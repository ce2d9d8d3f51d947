"""Reads the totals of many logs at once."""

from collections.abc import Iterable, Sequence

from hourwheel.context import Context
from hourwheel.model.log_names import cell_of
from hourwheel.ports.storage import GET_MANY, Counter


def names_by_cell(logs: Iterable[str]) -> list[list[str]]:
    """Returns the names of the logs by cell, in their order."""
    cells: dict[str, list[str]] = {}
    for log in logs:
        cells.setdefault(cell_of(log), []).append(log)
    return list(cells.values())


def read_totals(context: Context, names: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
    """Returns the totals of logs of one cell by name, perhaps out of date unless ``consistent``. Costs one request for
    each ``GET_MANY`` logs."""
    totals: dict[str, Counter] = {}
    for start in range(0, len(names), GET_MANY):
        page = names[start : start + GET_MANY]
        totals |= context.store_of(names[0]).counters(page, consistent=consistent)
    return totals
