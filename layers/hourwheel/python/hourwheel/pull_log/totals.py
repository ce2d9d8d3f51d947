"""Reads the totals of many logs at once."""

from collections.abc import Collection, Iterable, Mapping

from hourwheel.context import Context
from hourwheel.ports.storage import GET_MANY, Counter
from hourwheel.reach.storages import by_storage


def read_totals(context: Context, names: Iterable[str], *, consistent: bool = False) -> dict[str, Counter]:
    """Returns the totals of logs by name, perhaps out of date unless ``consistent``. Costs one request for each
    ``GET_MANY`` logs of a storage."""
    totals: dict[str, Counter] = {}
    for stored in by_storage(names):
        for start in range(0, len(stored), GET_MANY):
            page = stored[start : start + GET_MANY]
            totals |= context.store_of(stored[0]).counters(page, consistent=consistent)
    return totals


def read_missing(context: Context, names: Collection[str], counted: Mapping[str, Counter]) -> dict[str, Counter]:
    """Returns the totals of logs by name, perhaps out of date. Reads those that were not ``counted``."""
    totals = {name: counted[name] for name in names if name in counted}
    return totals | read_totals(context, [name for name in names if name not in totals])
