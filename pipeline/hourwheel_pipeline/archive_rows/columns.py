"""Builds columns of the lake from arrays and lists, without a loop over messages."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hourwheel.archive.blocks import TextColumn
from hourwheel.errors import Corrupt
from hourwheel.times import DAY_MS
from hourwheel_pipeline.lake.schemas import SCHEMAS, TIMESTAMP

Ints: TypeAlias = npt.NDArray[np.int64]

_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: Spark and Iceberg know no later day."""

_LAST_OF_ASCII = 0x7F


def batch_of(table: str, fields: Mapping[str, Any], total: int, manifest: int) -> pa.RecordBatch:
    """Returns ``total`` rows of the table; columns that ``fields`` does not name are null."""
    columns = {**fields, "manifest": pa.array(np.full(total, manifest, np.int64))}
    schema = SCHEMAS[table]
    arrays = [column_of(columns.get(field.name), field.type, total) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def column_of(values: Any, kind: pa.DataType, total: int) -> pa.Array:
    if values is None:
        return pa.nulls(total, kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def text_column(column: TextColumn | None, kind: pa.DataType, total: int) -> pa.Array:
    """Returns a column of texts or bytes that shares the memory of the block. Raises ``Corrupt`` if the lengths do not
    fit the data, or a text is not UTF-8."""
    if column is None:
        return pa.nulls(total, kind)
    lengths = np.frombuffer(column.lengths, "<i4")  # -1 stands for null
    least = int(np.min(lengths)) if len(lengths) else 0
    sizes = lengths if least >= 0 else np.maximum(lengths, 0)
    end = int(sizes.sum(dtype=np.int64))
    if len(lengths) != total or end != len(column.data) or least < -1:
        raise Corrupt(f"block holds {len(column.data)} bytes of texts, their lengths say {end}")
    offsets = np.zeros(total + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    # A column without nulls needs no bitmap.
    valid = None if least >= 0 else pa.py_buffer(np.packbits(lengths >= 0, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(column.data)]
    texts = pa.Array.from_buffers(kind, total, buffers)
    if pa.types.is_string(kind):
        _check_texts(texts, column.data)
    return texts


def time_column(column: TextColumn | None, total: int) -> pa.Array:
    """Returns a column of times, which are stored as texts. Raises ``Corrupt``, and ``ArrowInvalid`` for a text that is
    no time."""
    return pa.nulls(total, TIMESTAMP) if column is None else text_column(column, pa.string(), total).cast(TIMESTAMP)


def _check_texts(texts: pa.Array, data: memoryview) -> None:
    """Raises ``Corrupt`` for a text that is not UTF-8."""
    if not data or np.max(np.frombuffer(data, np.uint8)) <= _LAST_OF_ASCII:
        return  # checking each text takes ten times as long
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        raise Corrupt(f"block holds a text that is none: {error}") from error


def ints(values: Iterable[int]) -> Ints:
    return np.fromiter(values, np.int64)


def pairs(values: Iterable[tuple[int, int]]) -> Ints:
    return np.fromiter(chain.from_iterable(values), np.int64).reshape(-1, 2)


def _checked(ms: Ints) -> Ints:
    if not len(ms):
        return ms
    least, most = np.min(ms), np.max(ms)
    if least < 0 or most > _LATEST_MS:
        raise Corrupt(f"a time between {least} and {most} ms is out of range")
    return ms


def timestamps(ms: Ints, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.array(_checked(ms) * 1_000, mask=mask).view(TIMESTAMP)


def milliseconds_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns times with a zone as Unix milliseconds."""
    return pc.divide(times.cast(TIMESTAMP).cast(pa.int64()), 1_000)


def days(ms: Ints) -> pa.Array:
    return pa.array((_checked(ms) // DAY_MS).astype(np.int32)).view(pa.date32())


def lists(lengths: Sequence[int], values: pa.Array, kind: pa.DataType) -> pa.Array:
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, type=kind)


def byte_lengths(values: pa.Array) -> Ints:
    """Returns the UTF-8 bytes of each value; 0 for null."""
    if values.null_count == len(values):
        return np.zeros(len(values), np.int64)
    counted = pc.binary_length(values)
    lengths: Ints = (pc.fill_null(counted, 0) if values.null_count else counted).to_numpy().astype(np.int64)
    return lengths


def sums(offsets: pa.Array, lengths: Ints) -> Ints:
    """Returns for each list the sum of the lengths between its offset and the next one."""
    ends: Ints = np.concatenate(([0], np.cumsum(lengths)))[offsets.to_numpy()]
    return ends[1:] - ends[:-1]
