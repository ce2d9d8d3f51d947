"""Reads and writes the record of the format of a store that has no directory: of the tables of a cell on AWS.

    table      meta
    partition  cell
    sort       format
    value      StoreFormat, msgpack map

The sweeper stores the record; all others read it at the start of their process. A store from before the record was
introduced has none. The sweeper recognises the keys of before the first release, which no version reads, and stores
that: from then on each start is refused.
"""

from functools import partial

import msgspec

from hourwheel.cells.cell_storage import unavailable
from hourwheel.context import Context
from hourwheel.errors import Corrupt, DataVersion
from hourwheel.logs.cas import CasRecord, Versioned, value_of
from hourwheel.logs.formats import BEFORE, CURRENT, StoreFormat, check, raised
from hourwheel.ports.machine import Ids
from hourwheel.ports.storage import Key, Record, Store, Table
from hourwheel.reach.outages import all_reached

_HOME = "the deployment"

FORMAT_KEY = Key(Table.META, "cell", "format")


def check_formats(context: Context, *, keep: bool) -> bool:
    """Raises ``DataVersion`` if this version must not use the tables of the home cell. With ``keep`` it also stores the
    format, and those of the other cells that were added and can be reached; without, the others are checked when they
    are opened. Returns False if a cell could not be reached, and the call is to be repeated."""
    if not keep:
        check_format(context.store, context.ids, _HOME)
        return True
    keep_format(context.store, context.ids, _HOME)
    if context.cells is None:
        return True
    from hourwheel.cells.cells import registered_cells  # one function needs it, and only with other cells

    # A cell that is set up and not added yet has no mark: to open it would log an outage.
    added = {cell.name for cell in registered_cells(context.store, context.ids) if not cell.lost_ms}
    cells = added.intersection(context.cells.names())
    return len(all_reached(partial(_keep_format_of, context), cells)) == len(cells)


def _keep_format_of(context: Context, cell: str) -> None:
    assert context.cells is not None
    try:
        keep_format(context.cells.storage(cell).store, context.ids, f"cell {cell}")
    except DataVersion as error:
        raise unavailable(cell, error) from error


def check_format(store: Store, ids: Ids, store_name: str) -> None:
    """Raises ``DataVersion`` if this version must not use the store, which ``store_name`` names. One read."""
    stated = value_of(_loaded(_record(store, ids), store_name))
    if stated is not None:
        check(stated, store_name)


def repair_format(store: Store, ids: Ids) -> bool:
    """Stores the format of this version in place of a record that cannot be read. Returns whether it has. The caller
    has to know that no later version has raised the format."""
    record = _record(store, ids)
    try:
        record.load()
    except Corrupt:
        damaged = store.get(FORMAT_KEY)
        token = None if damaged is None else damaged.token
        data = msgspec.msgpack.encode(CURRENT)
        return store.put(FORMAT_KEY, Record(data, ids.token()), expect=token) is None
    return False


def check_before_deployment(store: Store, ids: Ids, store_name: str) -> None:
    """Does what ``check_format`` does, and recognises a store of before the first release. Two reads, no write."""
    check_format(store, ids, store_name)
    of_before = _format_of_before(store)
    if of_before is not None:
        check(of_before, store_name)


def keep_format(store: Store, ids: Ids, store_name: str) -> None:
    """Does what ``check_format`` does, and stores the format if it is not stored, or is older than that of this
    version. One read, and at the first start of a version a write."""
    record = _record(store, ids)
    current = _loaded(record, store_name)
    while True:
        stated = value_of(current)
        if stated is not None:
            check(stated, store_name)
        after = _format_of_before(store) if stated is None else None
        after = after or raised(stated)
        if after is None:
            return
        current = record.swap(current, after).current


def _format_of_before(store: Store) -> StoreFormat | None:
    """Returns the format of a store with subjects under the keys of before the first release; None for any other."""
    listed = store.scan(Table.META, "subjects", limit=2)
    if all(name == "shards" for name, _ in listed):
        return None
    return StoreFormat(format=BEFORE, least_reader=BEFORE, written_by="")


def _loaded(record: CasRecord[StoreFormat], store_name: str) -> Versioned[StoreFormat] | None:
    try:
        return record.load()
    except Corrupt as error:
        how = "run make repair-format, unless a later version has used it"
        raise Corrupt(f"the record of the format of {store_name} is damaged: {how}") from error


def _record(store: Store, ids: Ids) -> CasRecord[StoreFormat]:
    return CasRecord(store, ids, FORMAT_KEY, StoreFormat)
