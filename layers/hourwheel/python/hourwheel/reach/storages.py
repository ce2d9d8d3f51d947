"""Groups logs by the storage that holds them, which is that of one cell, and tells what became of that storage."""

from collections.abc import Iterable, Sequence

from hourwheel.context import Context, record_of_cell
from hourwheel.logs.cas import value_of
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.model.routes import CellRecord


def at_home(log: str) -> bool:
    """Returns whether the log is in the home cell."""
    return cell_of(log) == HOME


def by_storage(logs: Iterable[str]) -> list[list[str]]:
    """Returns the names of the logs, those of each storage together, in their order."""
    storages: dict[str, list[str]] = {}
    for log in logs:
        storages.setdefault(cell_of(log), []).append(log)
    return list(storages.values())


def indexes_by_storage(logs: Sequence[str]) -> list[list[int]]:
    """Returns the indexes of the logs, those of each storage together, in their order."""
    storages: dict[str, list[int]] = {}
    for index, log in enumerate(logs):
        storages.setdefault(cell_of(log), []).append(index)
    return list(storages.values())


def was_removed(context: Context, log: str, since_ms: int) -> bool:
    """Returns whether the storage of the log, which took messages at that time, was removed since. It may have been
    added again."""
    if at_home(log):
        return False
    record = stored_cell(context, cell_of(log))
    return record is None or record.removed or record.created_ms > since_ms


def was_given_up(context: Context, log: str) -> bool:
    """Returns whether the storage of the log was given up, or is being given up. One read."""
    record = stored_cell(context, cell_of(log))
    return record is not None and record.lost_ms > 0


def holds_no_lease(context: Context, log: str) -> bool:
    """Returns whether no lease is left in the storage of the log: it was given up, or it was removed, which needs an
    empty one. One read."""
    record = stored_cell(context, cell_of(log))
    return record is not None and (record.removed or record.lost_ms > 0)


def check_reserves(context: Context, logs: Iterable[str]) -> None:
    """Raises ``StorageFull`` or ``CellFull`` if the storage of one of these logs keeps the space that it has left."""
    for cell in dict.fromkeys(map(cell_of, logs)):
        context.reserve.check(cell)


def stored_cell(context: Context, name: str) -> CellRecord | None:
    """Reads the record of a cell, strongly consistent; None for the home cell, and for one that never was registered.
    One read."""
    current = None if name == HOME else record_of_cell(context.store, context.ids, name).load()
    return value_of(current)
