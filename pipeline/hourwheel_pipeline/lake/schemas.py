"""Defines the tables of the lake once; the schemas of Arrow, Spark and Iceberg are made from that definition.

    table       a row is                                 identity
    messages    a message in a row of a log, or a marker (log, row, index, kind)
    pulls       a closed row of a pull log               (log, pull_row)
    dispatches  a message that was handed over           (bucket, dispatch_row, transfer, source_row, source_index)

``day`` is the day (UTC) of the time by which the rows of a subject are sorted: ``accepted_at``, ``closed_at`` or
``at``. Jobs only ever append rows. An unknown subject is empty: a cancel marker names only a position in its log, and a
dropped message has no target. The ``index`` of a marker numbers the messages that it cancels or drops, from 0 on; a
marker has no fields of a message but the times of its row.

``origin_queue`` and ``origin_offset`` name the position at which a message was first accepted: null if it never was in
a queue. ``size`` counts UTF-8 bytes of body, key, tags and headers. ``manifest`` is the number of the archive's
manifest.
"""

import pyarrow as pa

from hourwheel.retention import kinds

MESSAGES, PULLS, DISPATCHES = kinds.MESSAGES, kinds.PULLS, kinds.DISPATCHES
"""A table has the name of its kind of segments."""

QUEUE, RETRY, DEAD, ORPHAN, SCHEDULE, CANCEL_MARKER = "queue", "retry", "dead", "orphan", "schedule", "cancel_marker"
DROP_MARKER = "drop_marker"
"""Kinds of messages: the kind of their log, save for markers."""

MARKERS = (CANCEL_MARKER, DROP_MARKER)
"""The kinds of rows that are no messages."""

TIMESTAMP = pa.timestamp("us", tz="UTC")
_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()

_PICK = pa.struct([pa.field("row", _LONG), pa.field("index", _INT)])
_MOVED = pa.struct(
    [
        pa.field("kind", _TEXT),
        pa.field("log", _TEXT),
        pa.field("row", _LONG),
        pa.field("number", _LONG),
        pa.field("at", TIMESTAMP),
        pa.field("picks", pa.list_(_PICK)),
    ]
)


def _always(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


SCHEMAS = {
    MESSAGES: pa.schema(
        [
            _always("day", pa.date32()),
            _always("subject", _TEXT),
            _always("log", _TEXT),
            _always("kind", _TEXT),
            pa.field("generation", _INT),
            pa.field("queue", _INT),
            pa.field("group", _TEXT),
            pa.field("group_generation", _INT),
            _always("row", _LONG),
            _always("index", _INT),
            _always("sequence", _LONG),
            pa.field("origin_queue", _INT),
            pa.field("origin_offset", _LONG),
            pa.field("id", _TEXT),
            pa.field("key", _TEXT),
            pa.field("tags", pa.list_(_TEXT)),
            pa.field("headers", pa.map_(_TEXT, _TEXT)),
            pa.field("body", _TEXT),
            pa.field("body_bytes", pa.binary()),
            pa.field("size", _INT),
            pa.field("attempt", _INT),
            _always("accepted_at", TIMESTAMP),
            pa.field("produced_at", TIMESTAMP),
            pa.field("due_at", TIMESTAMP),
            pa.field("died_at", TIMESTAMP),
            pa.field("reason", _TEXT),
            pa.field("expires_at", TIMESTAMP),
            pa.field("cancelled_row", _LONG),
            pa.field("cancelled_index", _INT),
            _always("manifest", _LONG),
        ]
    ),
    PULLS: pa.schema(
        [
            _always("day", pa.date32()),
            _always("subject", _TEXT),
            _always("log", _TEXT),
            _always("source", _TEXT),
            pa.field("queue", _INT),
            _always("generation", _INT),
            _always("group", _TEXT),
            _always("group_generation", _INT),
            _always("pull_row", _LONG),
            _always("consumer", _TEXT),
            _always("first_row", _LONG),
            _always("first_index", _INT),
            _always("end_row", _LONG),
            _always("end_index", _INT),
            _always("end_seq", _LONG),
            _always("counts", pa.list_(_INT)),
            pa.field("picks", pa.list_(_PICK)),
            _always("messages", _INT),
            _always("claimed_at", TIMESTAMP),
            _always("lease_until", TIMESTAMP),
            _always("closed_at", TIMESTAMP),
            _always("outcome", _TEXT),
            _always("moved", pa.list_(_MOVED)),
            _always("manifest", _LONG),
        ]
    ),
    DISPATCHES: pa.schema(
        [
            _always("day", pa.date32()),
            _always("subject", _TEXT),
            _always("bucket", _TEXT),
            _always("dispatch_row", _LONG),
            _always("transfer", _INT),
            _always("owner", _TEXT),
            _always("at", TIMESTAMP),
            _always("kind", _TEXT),
            pa.field("target_log", _TEXT),
            pa.field("target_row", _LONG),
            pa.field("target_index", _INT),
            pa.field("target_sequence", _LONG),
            _always("source_log", _TEXT),
            _always("source_row", _LONG),
            _always("source_index", _INT),
            pa.field("expires_at", TIMESTAMP),
            _always("manifest", _LONG),
        ]
    ),
}

SORTED_BY = {
    MESSAGES: ("subject", "accepted_at", "log", "row", "index"),
    PULLS: ("subject", "closed_at", "log", "pull_row"),
    DISPATCHES: ("subject", "at", "bucket", "dispatch_row", "transfer", "source_row", "source_index"),
}
"""The order of rows within a file."""

BOUNDED = {
    MESSAGES: ("kind", "key", "due_at", "manifest"),
    PULLS: ("source", "first_row", "end_row", "claimed_at", "manifest"),
    DISPATCHES: ("source_log", "manifest"),
}
"""The columns besides ``day`` and those of the order by which queries choose files."""

_SCALARS = {
    pa.date32(): "date",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    TIMESTAMP: "timestamp",
}


def spark_ddl(schema: pa.Schema) -> str:
    """Returns the schema in Spark's notation."""
    columns = (f"`{field.name}` {_spark_type(field.type)}{'' if field.nullable else ' NOT NULL'}" for field in schema)
    return ", ".join(columns)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_spark_type(kind.key_type)},{_spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'`{field.name}`:{_spark_type(field.type)}' for field in kind)}>"
    return _SCALARS[kind]
