"""Names the home of a deployment, and marks the storage of its other cells with that name.

    table      meta, of the home cell        meta, of another cell
    partition  cell                          cell
    sort       home                          owner
    value      the home's name, msgpack      CellMark, msgpack array

Logs of different deployments may have equal names: rows of one in the storage of another would be taken for its own.
"""

import msgspec

from hourwheel.errors import CellUnavailable, Conflict
from hourwheel.logs.cas import CasRecord
from hourwheel.ports.machine import Ids
from hourwheel.ports.storage import Key, Store, Table

_HOME = Key(Table.META, "cell", "home")
_OWNER = Key(Table.META, "cell", "owner")


class CellMark(msgspec.Struct, array_like=True, frozen=True):
    """Says which cell of which home a storage is."""

    home: str
    cell: str


def home_id(store: Store, ids: Ids, now_ms: int) -> str:
    """Returns the name of this home, which the first caller draws."""
    record = CasRecord(store, ids, _HOME, str)
    current = record.load()
    if current is None:
        current = record.swap(None, ids.unique(now_ms)).current
    assert current is not None
    return current.value


def claim(store: Store, ids: Ids, mark: CellMark, *, new: bool) -> None:
    """Marks the storage, which may have this mark already. Raises ``Conflict`` for one with another mark, and for one
    without a mark unless the cell is ``new``."""
    record = CasRecord(store, ids, _OWNER, CellMark)
    current = record.swap(None, mark).current if new else record.load()
    if current is None and not new:
        # It would give out again the offsets of the messages that are in the missing storage.
        detail = f"the storage of cell {mark.cell!r} is empty, and the cell has messages: restore its storage"
        raise Conflict("cell-foreign", detail, field="cell")
    if current is not None and current.value != mark:
        owner = f"cell {current.value.cell!r} of " + (
            "this deployment" if current.value.home == mark.home else "another deployment"
        )
        detail = f"the storage of cell {mark.cell!r} belongs to {owner}: give the cell a storage of its own"
        raise Conflict("cell-foreign", detail, field="cell")


def check_mark(store: Store, ids: Ids, mark: CellMark) -> None:
    """Raises ``CellUnavailable`` for a storage without this mark. One read."""
    current = CasRecord(store, ids, _OWNER, CellMark).load()
    if current is None:
        raise CellUnavailable(f"the storage of cell {mark.cell} is not marked as this deployment's: add the cell again")
    if current.value != mark:
        raise CellUnavailable(f"the storage of cell {mark.cell} belongs to another deployment: give the cell its own")
