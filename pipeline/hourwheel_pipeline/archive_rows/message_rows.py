"""Makes rows of the table ``messages`` from blocks of the archive.

Columns are built from columns, and values that all messages of a row share are decoded once for the row: nothing here
loops over messages.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hourwheel.archive import blocks
from hourwheel.archive.blocks import Columns, Entry, MessageRows
from hourwheel.errors import Corrupt
from hourwheel.logs.entries import CancelMarker, DueTimes, decode_drop_marker, decode_entry
from hourwheel.model.log_names import is_schedule
from hourwheel_pipeline.archive_rows.columns import (
    Ints,
    batch_of,
    byte_lengths,
    column_of,
    days,
    ints,
    sums,
    text_column,
    time_column,
    timestamps,
)
from hourwheel_pipeline.archive_rows.compression import decompress
from hourwheel_pipeline.archive_rows.names import LogOwner, log_owner
from hourwheel_pipeline.lake.schemas import CANCEL_MARKER, DEAD, DROP_MARKER, MESSAGES, QUEUE, SCHEMAS


def message_rows(block: memoryview, manifest: int) -> Iterator[pa.RecordBatch]:
    decoded = blocks.decode_messages(block, decompress)
    metas = {
        i: decode_entry(entry.meta)
        for i, entry in enumerate(decoded.entries)
        if entry.meta and is_schedule(decoded.logs[entry.log])
    }
    due_times = {i: meta for i, meta in metas.items() if isinstance(meta, DueTimes)}
    cancel_markers = {i: meta for i, meta in metas.items() if isinstance(meta, CancelMarker)}
    if decoded.present:
        yield _message_batch(decoded, due_times, manifest)
    if cancel_markers:
        marked = [(i, [(marker.row_no, marker.index)]) for i, marker in cancel_markers.items()]
        yield _marker_batch(decoded, CANCEL_MARKER, marked, manifest)
    drops = [
        (i, decode_drop_marker(entry.meta))
        for i, entry in enumerate(decoded.entries)
        if entry.meta and not entry.count and log_owner(decoded.logs[entry.log]).kind == DEAD
    ]
    if drops:
        marked = [(i, [(drop.row_no, index) for index in drop.indexes]) for i, drop in drops]
        yield _marker_batch(decoded, DROP_MARKER, marked, manifest)


def _message_batch(decoded: MessageRows, due_times: Mapping[int, DueTimes], manifest: int) -> pa.RecordBatch:
    entries, columns = decoded.entries, decoded.columns
    present = ints(entry.present for entry in entries)
    total = int(present.sum())
    if columns.body is None and columns.body_base64 is None:
        raise Corrupt(f"block claims {total} messages, holds no bodies")
    index = np.arange(total) - np.repeat(np.cumsum(present) - present, present)
    sequence = np.repeat(ints(entry.first_seq for entry in entries), present) + index
    owners, owner_indexes = _owners(decoded, due_times)
    owner_columns = _owner_columns(owners, np.repeat(owner_indexes, present))
    fields = {
        **owner_columns,
        **_time_columns(entries, present),
        **_stored_columns(columns, total),
        **_origin_columns(columns, owner_columns, pa.array(sequence)),
        "row": pa.array(np.repeat(ints(entry.row_no for entry in entries), present)),
        "index": pa.array(index.astype(np.int32)),
        "sequence": pa.array(sequence),
    }
    if due_times:
        fields["due_at"] = pc.coalesce(_planned(due_times, present, total), fields["due_at"])
    return batch_of(MESSAGES, fields, total, manifest)


def _marker_batch(
    decoded: MessageRows, kind: str, marked: Sequence[tuple[int, Sequence[tuple[int, int]]]], manifest: int
) -> pa.RecordBatch:
    """Returns a row for each message that the markers, given by the indexes of their entries, cancel or drop."""
    marks = [(i, index, pick) for i, picks in marked for index, pick in enumerate(picks)]
    entries = [decoded.entries[i] for i, _, _ in marks]
    owners = [log_owner(decoded.logs[entry.log])._replace(kind=kind) for entry in entries]
    rows = range(len(entries))
    fields = {
        **_owner_columns(owners, np.array(rows)),
        **_time_columns(entries, np.ones(len(entries), np.int64)),
        "row": pa.array([entry.row_no for entry in entries]),
        "index": pa.array([index for _, index, _ in marks], pa.int32()),
        "sequence": pa.array([entry.first_seq for entry in entries]),
        "cancelled_row": pa.array([row_no for _, _, (row_no, _) in marks]),
        "cancelled_index": pa.array([index for _, _, (_, index) in marks], pa.int32()),
    }
    return batch_of(MESSAGES, fields, len(entries), manifest)


def _owners(decoded: MessageRows, due_times_of: Mapping[int, DueTimes]) -> tuple[list[LogOwner], Ints]:
    """Returns the owners of the logs in the block, and for each entry the index of its owner. The entries of a schedule
    log have the subject, and for a retry the group, of their due times."""
    owners = [log_owner(log) for log in decoded.logs]
    owner_indexes = ints(entry.log for entry in decoded.entries)
    indexes: dict[tuple[int, str, int, str | None], int] = {}
    for number, due_times in due_times_of.items():
        log = decoded.entries[number].log
        key = log, due_times.subject, due_times.generation, due_times.member
        if key not in indexes:
            indexes[key] = len(owners)
            owners.append(owners[log].planned(due_times))
        owner_indexes[number] = indexes[key]
    return owners, owner_indexes


def _owner_columns(owners: Sequence[LogOwner], indexes: Ints) -> dict[str, pa.Array]:
    schema = SCHEMAS[MESSAGES]
    return {
        name: _taken([getattr(owner, name) for owner in owners], indexes, schema.field(name).type)
        for name in LogOwner._fields
    }


def _taken(values: Sequence[str | int | None], indexes: Ints, kind: pa.DataType) -> pa.Array:
    """Returns the values at these indexes."""
    # All rows of a block often have one owner: a repeated value needs no gathering.
    if len(set(values)) == 1:
        return pa.repeat(pa.scalar(values[0], kind), len(indexes))
    return pc.take(pa.array(values, kind), pa.array(indexes), boundscheck=False)


def _time_columns(entries: Sequence[Entry], counts: Ints) -> dict[str, pa.Array]:
    """Returns the columns of times: those of each entry, repeated for the number of its rows in ``counts``."""
    stored = np.repeat(ints(entry.at_ms for entry in entries), counts)
    expires = np.repeat(ints(entry.expires_ms for entry in entries), counts)
    return {
        "day": days(stored),
        "accepted_at": timestamps(stored),
        "expires_at": timestamps(expires, expires == 0),
    }


def _stored_columns(columns: Columns, total: int) -> dict[str, pa.Array]:
    """Returns the columns whose values differ from message to message."""
    body = text_column(columns.body, pa.string(), total)
    body_bytes = text_column(columns.body_base64, pa.binary(), total)
    key = text_column(columns.key, pa.string(), total)
    schema = SCHEMAS[MESSAGES]
    tags = column_of(columns.tags, schema.field("tags").type, total)
    headers = column_of(columns.headers, schema.field("headers").type, total)
    size = byte_lengths(body) + byte_lengths(body_bytes) + byte_lengths(key)
    if columns.tags is not None:
        size += sums(tags.offsets, byte_lengths(tags.values))
    if columns.headers is not None:
        size += sums(headers.offsets, byte_lengths(headers.keys) + byte_lengths(headers.items))
    return {
        "body": body,
        "body_bytes": body_bytes,
        "key": key,
        "tags": tags,
        "headers": headers,
        "size": pa.array(size, pa.int32()),
        "id": text_column(columns.id, pa.string(), total),
        "reason": text_column(columns.reason, pa.string(), total),
        "produced_at": time_column(columns.produced_at, total),
        "due_at": time_column(columns.due_at, total),
        "died_at": time_column(columns.died_at, total),
    }


def _origin_columns(columns: Columns, owner_columns: Mapping[str, pa.Array], sequence: pa.Array) -> dict[str, pa.Array]:
    """Returns the position at which a message was first accepted, and its attempt: 1 in queues, null for a message that
    waits for its time, elsewhere the stored number."""
    total = len(sequence)
    queue = column_of(columns.queue, pa.int32(), total)
    offset = column_of(columns.offset, pa.int64(), total)
    stored = column_of(columns.attempt, pa.int32(), total)
    queued = pc.equal(owner_columns["kind"], QUEUE)
    first_attempt = pa.repeat(pa.scalar(1, pa.int32()), total)
    if pc.all(queued).as_py():
        return {"origin_queue": owner_columns["queue"], "origin_offset": sequence, "attempt": first_attempt}
    counted = pc.if_else(pc.equal(stored, 0), pa.scalar(None, pa.int32()), stored)
    return {
        "origin_queue": pc.if_else(queued, owner_columns["queue"], queue),
        "origin_offset": pc.if_else(queued, sequence, offset),
        "attempt": pc.if_else(queued, first_attempt, counted),
    }


def _planned(due_times: Mapping[int, DueTimes], present: Ints, total: int) -> pa.Array:
    """Returns the due times of the messages in schedule logs; null for all others."""
    due, delayed = np.zeros(total, np.int64), np.zeros(total, bool)
    starts = np.cumsum(present) - present
    for number, times in due_times.items():
        count, start = int(present[number]), int(starts[number])
        if not count:
            continue  # the messages of the row could not be read
        if times.after_ms and len(times.after_ms) != count:
            raise Corrupt(f"row has {count} messages and due times for {len(times.after_ms)}")
        due[start : start + count] = times.first_ms + np.array(times.after_ms or 0, np.int64)
        delayed[start : start + count] = True
    return timestamps(due, ~delayed)
