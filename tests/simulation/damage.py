"""Damages stored batches: their bytes become wrong under a correct checksum, also those of a large batch."""

import msgspec

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.logs.codec import pack
from hourwheel.logs.rows import LargeBatchRef, Row, from_record, row_key, to_record
from hourwheel.ports.storage import Record
from tests.simulation.audit import StoreAudit
from tests.simulation.facts import LogName
from tests.simulation.state import State
from tests.simulation.world import World

_MOST = 4
"""A run in which no message can be read would show nothing."""

_SCHEMA = 1
_TEXT, _NO_TEXT = b"\x7f", b"\xff"


def spoil(world: World, state: State, blobs: MemoryBlobs, audit: StoreAudit) -> None:
    """Damages one batch of a queue, unseen by anybody."""
    rows = {
        (log, row_no): record
        for log, facts in audit.logs.items()
        if LogName.parse(log).kind == "queue"
        for row_no, fact in facts.items()
        if not fact.row.filler and (record := _stored(state, log, row_no)) is not None
    }
    damaged = [place for place in rows if audit.rows(place[0])[place[1]].damaged]
    if len(damaged) >= _MOST or len(damaged) == len(rows):
        return
    log, row_no = world.rng.choice([place for place in rows if place not in damaged])
    record = rows[log, row_no]
    changed = to_record(_damaged(from_record(record), blobs), record.token, 0)
    state.set(row_key(log, row_no), Record(changed.value, record.token, record.expires_ms))
    audit.damage(log, row_no)
    world.record("damage", log, row_no)


def _stored(state: State, log: str, row_no: int) -> Record | None:
    key = row_key(log, row_no)
    return state.partition(key.table, key.partition).items.get(key.sort)


def _damaged(row: Row, blobs: MemoryBlobs) -> Row:
    raw = msgspec.msgpack.encode([{"body": _TEXT.decode()}] * row.count).replace(_TEXT, _NO_TEXT)
    data = pack(raw, row.count, _SCHEMA, level=1).data
    if row.large_batch is None:
        return msgspec.structs.replace(row, block=data)
    key = f"{row.large_batch.key}-damaged"
    blobs.put(key, data)
    return msgspec.structs.replace(row, large_batch=LargeBatchRef(key, 0, len(data)))
