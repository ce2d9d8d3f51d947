"""Defines the columns of messages, and builds them from the columns of the archive.

The order of the columns is part of the schema: Spark 4.0 and 4.1 take columns by position, not by name.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from hourwheel.archive.blocks import MessageRows, TextColumn
from hourwheel.errors import Corrupt
from hourwheel_pipeline.archive_rows.columns import text_column
from hourwheel_pipeline.lake.schemas import TIMESTAMP, spark_ddl

SCHEMA = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("queue", pa.int32(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("id", pa.string()),
        pa.field("key", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("body", pa.string()),
        pa.field("body_bytes", pa.binary()),
        pa.field("accepted_at", TIMESTAMP, nullable=False),
        pa.field("due_at", TIMESTAMP),
    ]
)

DDL = spark_ddl(SCHEMA)

_STORED = {"body_bytes": "body_base64"}


class Window(NamedTuple):
    """Selects messages of a log: those with sequences in ``[first, following)``, accepted in ``[since_ms, until_ms)``.
    None stands for no bound."""

    first: int | None = None
    following: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


def chosen_schema(chosen: StructType) -> pa.Schema:
    """Returns the chosen columns, in their order. Raises ``ValueError`` for columns that the format does not have."""
    unknown = [field.name for field in chosen if not _exists(field)]
    if unknown:
        raise ValueError(f"format hourwheel has no columns like {', '.join(unknown)}; its columns are {DDL}")
    return pa.schema([SCHEMA.field(field.name).with_nullable(field.nullable) for field in chosen])


def _exists(field: StructField) -> bool:
    if field.name not in SCHEMA.names:
        return False
    column = SCHEMA.field(field.name)
    same_type = spark_ddl(pa.schema([column.with_nullable(True)])) == f"`{field.name}` {field.dataType.simpleString()}"
    return same_type and (field.nullable or not column.nullable)


def batch_of(rows: MessageRows, subject: str, queues: Mapping[str, int], window: Window, schema: pa.Schema) -> Any:
    """Returns the messages of a block within the window as a ``RecordBatch``; None if there are none. ``queues``: the
    numbers of the queues to read, by their logs. Raises ``Corrupt``."""
    numbers = np.array([queues.get(log, -1) for log in rows.logs], dtype=np.int32)
    entries = [entry for entry in rows.entries if entry.present]
    if not entries or not (numbers >= 0).any():
        return None
    counts = np.array([entry.present for entry in entries], dtype=np.int64)
    queue = numbers[np.array([entry.log for entry in entries])]
    at_ms = np.array([entry.at_ms for entry in entries], dtype=np.int64)
    number = np.array([entry.first_seq for entry in entries], dtype=np.int64)
    # For each message: the first sequence of its row, minus the row's first index in the block, plus its own index
    # there.
    sequence = np.repeat(number - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    mask = np.repeat((queue >= 0) & _between(at_ms, window.since_ms, window.until_ms), counts)
    mask &= _between(sequence, window.first, window.following)
    count = int(mask.sum())
    if not count:
        return None
    total, all_chosen = len(mask), count == len(mask)
    builders: dict[str, Callable[[], Any]] = {
        "subject": lambda: pa.repeat(pa.scalar(subject), count),
        "queue": lambda: pa.array(np.repeat(queue, counts)[mask]),
        "sequence": lambda: pa.array(sequence[mask]),
        "accepted_at": lambda: pa.array(np.repeat(at_ms * 1_000, counts)[mask]).cast(TIMESTAMP),
    }
    columns = []
    for field in schema:
        if field.name in builders:
            columns.append(builders[field.name]())
            continue
        values = _array(getattr(rows.columns, _STORED.get(field.name, field.name)), field, total)
        columns.append(values if all_chosen else values.filter(pa.array(mask)))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _between(values: npt.NDArray[np.int64], low: int | None, high: int | None) -> npt.NDArray[np.bool_]:
    inside = np.ones(len(values), dtype=np.bool_)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values < high
    return inside


def _array(values: Sequence[Any] | TextColumn | None, field: pa.Field, total: int) -> pa.Array:
    """Returns a stored column in the type of the field. Raises ``Corrupt`` if its values have another type."""
    if values is None:
        return pa.nulls(total, field.type)
    try:
        if isinstance(values, TextColumn):
            if field.type == TIMESTAMP:
                return text_column(values, pa.string(), total).cast(TIMESTAMP)
            return text_column(values, field.type, total)
        if pa.types.is_map(field.type):
            values = [None if value is None else list(value.items()) for value in values]
        return pa.array(values, field.type)
    except pa.ArrowInvalid as error:
        raise Corrupt(f"column {field.name} cannot be read: {error}") from error
