"""Groups logs by the storage that holds them, which is that of one cell."""

from collections.abc import Iterable

from hourwheel.model.log_names import HOME, cell_of


def at_home(log: str) -> bool:
    """Returns whether the log is in the home cell."""
    return cell_of(log) == HOME


def by_storage(logs: Iterable[str]) -> list[list[str]]:
    """Returns the names of the logs, those of each storage together, in their order."""
    storages: dict[str, list[str]] = {}
    for log in logs:
        storages.setdefault(cell_of(log), []).append(log)
    return list(storages.values())
