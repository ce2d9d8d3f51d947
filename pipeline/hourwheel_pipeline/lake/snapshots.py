"""Reads the properties of a table, which the summary of its newest snapshot with properties holds."""

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from hourwheel.errors import Broken

_NOTES = "hourwheel."


def rows_of(table: Table) -> int:
    """Returns the number of rows of the table, as its snapshot counts them."""
    snapshot = table.current_snapshot()
    summary = None if snapshot is None else snapshot.summary
    return 0 if summary is None else int(summary.additional_properties.get("total-records", "0"))


def noted(table: Table) -> list[Snapshot]:
    """Returns the current snapshot and those before it, back to the last one with properties: other engines may
    write to the table, and do not repeat the properties."""
    snapshots: list[Snapshot] = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        snapshots.append(snapshot)
        if _notes_in(snapshot):
            break
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return snapshots


def checked_properties(table: Table) -> dict[str, str]:
    """Returns the properties of the table. Raises ``Broken`` if the table has a snapshot and no properties."""
    properties = properties_of(table)
    if not properties and table.current_snapshot() is not None:
        raise Broken(
            f"table {table.name()[-1]} of the lake does not say what it holds: another engine replaced it, or removed"
            " the snapshots that said so"
        )
    return properties


def properties_of(table: Table) -> dict[str, str]:
    snapshots = noted(table)
    return _notes_in(snapshots[-1]) if snapshots else {}


def _notes_in(snapshot: Snapshot) -> dict[str, str]:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return {key: value for key, value in summary.items() if key.startswith(_NOTES)}
