"""The columns of messages, and how they are made from those of the archive.

The order of the columns is part of the schema: Spark 4.0 and 4.1 take columns by their place, whatever their names.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from hourwheel.archive.blocks import MessageRows
from hourwheel.errors import Corrupt
from hourwheel_pipeline.schemas import TIMESTAMP, spark_ddl

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
    """Which messages of a log are wanted: sequences ``[first, following)``, accepted in ``[since_ms, until_ms)``. None:
    there is no such bound."""

    first: int | None = None
    following: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


EVERYTHING = Window()


def chosen_schema(wanted: StructType) -> pa.Schema:
    """The columns that a reader was asked for, in its order; raises ``ValueError`` for others."""
    strange = [field.name for field in wanted if not _is_ours(field)]
    if strange:
        raise ValueError(f"format hourwheel has no columns like {', '.join(strange)}; those there are, are {DDL}")
    return pa.schema([SCHEMA.field(field.name).with_nullable(field.nullable) for field in wanted])


def _is_ours(field: StructField) -> bool:
    if field.name not in SCHEMA.names:
        return False
    ours = SCHEMA.field(field.name)
    same = spark_ddl(pa.schema([ours.with_nullable(True)])) == f"`{field.name}` {field.dataType.simpleString()}"
    return same and (field.nullable or not ours.nullable)


def batch_of(rows: MessageRows, subject: str, queues: Mapping[str, int], window: Window, schema: pa.Schema) -> Any:
    """The wanted messages of a block as a ``RecordBatch``; ``queues`` are the logs that count, and their numbers.
    None when there are none. Raises ``Corrupt``."""
    numbers = np.array([queues.get(log, -1) for log in rows.logs], dtype=np.int32)
    entries = [entry for entry in rows.entries if entry.held]
    if not entries or not (numbers >= 0).any():
        return None
    held = np.array([entry.held for entry in entries], dtype=np.int64)
    queue = numbers[np.array([entry.log for entry in entries])]
    at_ms = np.array([entry.at_ms for entry in entries], dtype=np.int64)
    number = np.array([entry.number for entry in entries], dtype=np.int64)
    # Of each message: the first sequence of its row, less the place of that in the block, plus its own.
    sequence = np.repeat(number - (np.cumsum(held) - held), held) + np.arange(held.sum())
    mask = np.repeat((queue >= 0) & _between(at_ms, window.since_ms, window.until_ms), held)
    mask &= _between(sequence, window.first, window.following)
    count = int(mask.sum())
    if not count:
        return None
    whole = count == len(mask)
    chosen: list[bool] = [] if whole else mask.tolist()
    made: dict[str, Callable[[], Any]] = {
        "subject": lambda: pa.repeat(pa.scalar(subject), count),
        "queue": lambda: pa.array(np.repeat(queue, held)[mask]),
        "sequence": lambda: pa.array(sequence[mask]),
        "accepted_at": lambda: pa.array(np.repeat(at_ms * 1_000, held)[mask]).cast(TIMESTAMP),
    }
    columns = []
    for field in schema:
        if field.name in made:
            columns.append(made[field.name]())
            continue
        values = getattr(rows.columns, _STORED.get(field.name, field.name))
        columns.append(_array(values if whole or values is None else list(compress(values, chosen)), field, count))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _between(values: npt.NDArray[np.int64], low: int | None, high: int | None) -> npt.NDArray[np.bool_]:
    inside = np.ones(len(values), dtype=np.bool_)
    if low is not None:
        inside &= values >= low
    if high is not None:
        inside &= values < high
    return inside


def _array(values: Sequence[Any] | None, field: pa.Field, count: int) -> pa.Array:
    """A stored column as it is told; raises ``Corrupt`` when it holds something else."""
    if values is None:
        return pa.nulls(count, field.type)
    try:
        if field.type == TIMESTAMP:
            return pa.array(values, pa.string()).cast(TIMESTAMP)
        if pa.types.is_map(field.type):
            values = [None if value is None else list(value.items()) for value in values]
        return pa.array(values, field.type)
    except pa.ArrowInvalid as error:
        raise Corrupt(f"column {field.name} cannot be read: {error}") from error
