"""Stores the records of a deployment's cells in the meta table of the home cell.

    table      meta
    partition  cells
    sort       {cell}
    value      CellRecord, msgpack array

The storage of a cell is opened by the process, which knows where it is from its own settings; the record says what the
cell is for, and whether queues may move to it. A removed cell stays as a tombstone, because logs are named after it.
"""

import re

from hourwheel.context import Context, record_of_cell
from hourwheel.errors import Conflict, NotFound, Rejected
from hourwheel.logs.cas import CasRecord
from hourwheel.model.log_names import HOME
from hourwheel.model.routes import CellRecord
from hourwheel.ports.machine import Ids
from hourwheel.ports.storage import Store, Table, items_of
from hourwheel.reach.outages import outage
from hourwheel.reach.storages import stored_cell

HOME_NAME = "home"
"""The name of the home cell for operators."""

_PATTERN = r"[a-z0-9-]{1,30}"
_PAGE = 100


def check_cell_name(name: str) -> str:
    """Returns the name as logs contain it; raises ``Rejected`` for a name that no cell can have."""
    if name == HOME_NAME:
        return HOME
    if not re.fullmatch(_PATTERN, name, re.ASCII):
        detail = f"a cell's name has 1 to 30 lower-case letters, digits and dashes, got {name[:40]!r}"
        raise Rejected("name-invalid", detail, field="cell")
    return name


def shown(cell: str) -> str:
    """Returns the name of the cell for operators."""
    return cell or HOME_NAME


def cell_record(context: Context, name: str) -> CasRecord[CellRecord]:
    return record_of_cell(context.store, context.ids, name)


def load_cell(context: Context, name: str) -> CellRecord:
    """Returns the record of a cell, the home cell's too. Raises ``NotFound`` for a cell that is not registered."""
    if name == HOME:
        return CellRecord(name=HOME)
    record = stored_cell(context, name)
    if record is None or record.removed:
        given_up = record is not None and record.lost_ms
        detail = name_is_used_up(name) if given_up else f"there is no cell {name!r}: add it with hourwheel cell add"
        raise NotFound("cell-unknown", detail, field="cell")
    return record


def name_is_used_up(name: str) -> str:
    """Returns the sentence that refuses to use a cell that was given up."""
    return f"cell {name!r} was given up: its name is not used again; use another name"


def reachable(context: Context, cell: str) -> bool:
    """Returns whether this process can read the cell."""
    # The counter of a log that does not exist: the cheapest read that needs the tables.
    probe = _probe(cell)
    return outage(lambda: context.store_of(probe).counter(probe)) is None


def prove_writable(context: Context, cell: str) -> None:
    """Writes to the cell, and changes nothing that anybody reads. Raises ``CellUnavailable`` for a cell that is out of
    reach, and the errors of the home store for the home cell."""
    probe = _probe(cell)
    context.store_of(probe).add(probe, rows=1, numbers=0)


def takes_writes(context: Context, cell: str) -> bool:
    """Returns whether this process can write to the cell."""
    return outage(lambda: prove_writable(context, cell)) is None


def cells_beside(context: Context, cell: str) -> list[str]:
    """Returns the other cells that take queues and that this process can write to."""
    others = [other.name for other in all_cells(context) if other.takes_queues and other.name != cell]
    return [other for other in others if takes_writes(context, other)]


def _probe(cell: str) -> str:
    """Returns the name of a counter in the cell that counts for no log."""
    return f"{cell}:probe" if cell else "probe"


def changed_meanwhile(cell: str) -> Conflict:
    detail = f"cell {cell!r} was changed by somebody else: look at it, then try again"
    return Conflict("changed-meanwhile", detail)


def given_up_names(store: Store, ids: Ids) -> list[str]:
    """Returns the names of the cells of this home that were given up and removed."""
    return [record.name for record in _stored(store, ids) if record.removed and record.lost_ms]


def all_cells(context: Context) -> list[CellRecord]:
    """Returns the home cell and the registered cells, by name."""
    return [CellRecord(name=HOME), *registered_cells(context.store, context.ids)]


def registered_cells(store: Store, ids: Ids) -> list[CellRecord]:
    """Returns the registered cells of the home with this store, by name."""
    return [record for record in _stored(store, ids) if not record.removed]


def _stored(store: Store, ids: Ids) -> list[CellRecord]:
    items = items_of(store, Table.META, "cells", page=_PAGE)
    stored = [record_of_cell(store, ids, name).opened(record) for name, record in items]
    return [current.value for current in stored if current is not None]


def check_takes_queues(context: Context, name: str) -> None:
    """Raises ``Rejected`` unless queues may move to the cell."""
    cell = load_cell(context, name)
    if "real-time" not in cell.kinds:
        raise Conflict("cell-state", f"cell {shown(name)!r} takes no queues: it is of the kind delay", field="cell")
    if cell.state != "normal":
        detail = f"cell {shown(name)!r} is {cell.state}: queues move only to a cell whose state is normal"
        raise Conflict("cell-state", detail, field="cell")
