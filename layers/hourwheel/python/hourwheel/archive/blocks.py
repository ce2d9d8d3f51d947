"""Encodes and decodes blocks of the archive: rows of several logs of one kind, one after the other.

    kind        schema  payload, msgpack
    messages    6       [[log …], [Entry …], Columns]      rows of queues, retry, dead and schedule logs
    pulls       3       [[log …], [[log, row, PullRow] …]]
    dispatches  4       [[log …], [[log, row, Dispatched] …]]
    registry    5       [[Subject …], [Group …]]           as they were at a moment

``log`` is an index of the first list. Pull logs are named by their partitions, dispatch logs by their buckets. The
messages of a block are those of its entries, in their order, field by field. Texts are stored as Arrow has them in
memory, so that a reader makes columns of them without an object for each message:

    TextColumn  [lengths, data]     lengths: bytes of each value, int32 little-endian, -1 for None
                                    data: the values one after the other, texts as UTF-8
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Self, TypeAlias, TypeVar

import msgspec

from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.codec import Block, Decompress, check_length, length, pack, unpack
from hourwheel.logs.compression import decompressed
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.records import PullRow
from hourwheel.retention.kinds import DISPATCHES, MESSAGES, PULLS, REGISTRY

T = TypeVar("T")

SCHEMAS = {MESSAGES: 6, PULLS: 3, DISPATCHES: 4, REGISTRY: 5}

_LEVEL = 3  # zstandard's default


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """A row of a log of messages. ``present`` of its ``count`` messages are in the block: all, or none where it is a
    filler or could not be read."""

    log: int
    row_no: int
    first_seq: int
    count: int
    present: int
    at_ms: int
    expires_ms: int
    meta: bytes = b""


class TextColumn(msgspec.Struct, array_like=True, frozen=True):
    """A field of messages with texts or bytes. Both parts are memory of the decoded block."""

    lengths: memoryview
    data: memoryview

    @classmethod
    def of(cls, values: Sequence[str | bytes | None]) -> Self:
        encoded = [value.encode() if isinstance(value, str) else value for value in values]
        lengths = array("i", [-1 if value is None else len(value) for value in encoded])
        data = b"".join([value for value in encoded if value])
        return cls(memoryview(_little_endian(lengths).tobytes()), memoryview(data))

    def texts(self) -> list[str | None]:
        """Returns the values as texts; raises ``Corrupt``."""
        try:
            text = str(self.data, "utf-8")
            # Lengths count bytes, which are characters in ASCII alone.
            if text.isascii():
                return [None if start < 0 else text[start:end] for start, end in self._spans()]
            return [None if start < 0 else str(self.data[start:end], "utf-8") for start, end in self._spans()]
        except UnicodeDecodeError as error:
            raise Corrupt(f"block holds a text that is none: {error}") from error

    def values(self) -> list[bytes | None]:
        """Returns the values as bytes; raises ``Corrupt``."""
        return [None if start < 0 else bytes(self.data[start:end]) for start, end in self._spans()]

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Returns where each value begins and ends in ``data``; two negative numbers for None. Raises ``Corrupt``."""
        lengths = array("i")
        lengths.frombytes(self.lengths)
        lengths = _little_endian(lengths)
        least = min(lengths, default=0)
        # The usual case, without a call for each message: every message has a value.
        ends = list(accumulate(lengths if least >= 0 else (max(0, size) for size in lengths), initial=0))
        if least < -1 or ends[-1] != len(self.data):
            raise Corrupt(f"block holds {len(self.data)} bytes of texts, their lengths say {ends[-1]}")
        if least >= 0:
            return pairwise(ends)
        return ((-1, -1) if size < 0 else span for size, span in zip(lengths, pairwise(ends), strict=True))


def _little_endian(lengths: "array[int]") -> "array[int]":
    if sys.byteorder == "big":
        lengths.byteswap()
    return lengths


class Columns(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The fields of messages as they were stored (see ``Message``): each has the values of all messages, and is None
    where no message has one. The values of texts are checked when they are read."""

    body: TextColumn | None = None
    body_base64: TextColumn | None = None
    key: TextColumn | None = None
    tags: list[list[str] | None] | None = None
    headers: list[dict[str, str] | None] | None = None
    id: TextColumn | None = None
    queue: list[int | None] | None = None
    offset: list[int | None] | None = None
    attempt: list[int] | None = None
    produced_at: TextColumn | None = None
    due_at: TextColumn | None = None
    died_at: TextColumn | None = None
    reason: TextColumn | None = None
    detail: TextColumn | None = None
    suspect: list[bool] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        columns: dict[str, Any] = {}
        for name in FIELDS:
            values = [getattr(message, name) for message in messages]
            if any(value != _ABSENT.get(name) for value in values):
                columns[name] = values if name in _LISTS else TextColumn.of(values)
        return cls(**columns)

    def messages(self, count: int) -> list[Message]:
        """Returns the messages of which these are the columns; ``count`` is their number. Raises ``Corrupt``."""
        values_by_name = {name: self._values(name) for name in FIELDS if getattr(self, name) is not None}
        return [Message(**{name: values[i] for name, values in values_by_name.items()}) for i in range(count)]

    def _values(self, name: str) -> Sequence[Any]:
        column = getattr(self, name)
        if not isinstance(column, TextColumn):
            values: Sequence[Any] = column
            return values
        return column.values() if name == "body_base64" else column.texts()


FIELDS = Columns.__struct_fields__
_LISTS = frozenset({"tags", "headers", "queue", "offset", "attempt", "suspect"})
_ABSENT = {"attempt": 0, "suspect": False}  # the value of a field that a message does not have, where it is not None


class MessageRows(msgspec.Struct, array_like=True, frozen=True):
    logs: list[str]
    entries: list[Entry]
    columns: Columns

    @property
    def present(self) -> int:
        """How many messages the block has."""
        return sum(entry.present for entry in self.entries)


class PullRows(msgspec.Struct, array_like=True, frozen=True):
    logs: list[str]
    rows: list[tuple[int, int, PullRow]]


class DispatchRows(msgspec.Struct, array_like=True, frozen=True):
    logs: list[str]
    rows: list[tuple[int, int, Dispatched]]


class RegistrySnapshot(msgspec.Struct, array_like=True, frozen=True):
    """Subjects and groups, including deleted ones until their rows are erased."""

    subjects: list[Subject]
    groups: list[Group]


Content: TypeAlias = MessageRows | PullRows | DispatchRows | RegistrySnapshot

MOST_ROWS = 8_192
"""The largest number of rows in a block. The collector closes a block at half of this, or at a megabyte."""

_MOST_LOGS = 2 * MOST_ROWS
_MOST_FIELDS = 100
"""The largest number of fields of messages: room for those that later versions add."""

_LENGTH_BYTES = 4  # an int32 for each text

_encoder = msgspec.msgpack.Encoder()
_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_strings = msgspec.msgpack.Decoder(list[str])
_entries = msgspec.msgpack.Decoder(list[Entry])
_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])
_columns = msgspec.msgpack.Decoder(Columns)
_pulls = msgspec.msgpack.Decoder(list[tuple[int, int, PullRow]])
_ordered_pulls = msgspec.msgpack.Decoder(list[tuple[int, int, OrderedRow]])
_dispatches = msgspec.msgpack.Decoder(list[tuple[int, int, Dispatched]])
_registry = msgspec.msgpack.Decoder(RegistrySnapshot)


def encode_messages(logs: Sequence[str], entries: Sequence[Entry], messages: Sequence[Message]) -> Block:
    return pack(_encoder.encode([logs, entries, Columns.of(messages)]), len(entries), SCHEMAS[MESSAGES], _LEVEL)


def encode_rows(kind: str, logs: Sequence[str], rows: Sequence[tuple[int, int, PullRow | Dispatched]]) -> Block:
    """Encodes a block of pull rows or of dispatch rows."""
    return pack(_encoder.encode([logs, rows]), len(rows), SCHEMAS[kind], _LEVEL)


def encode_registry(snapshot: RegistrySnapshot) -> Block:
    return pack(_encoder.encode(snapshot), len(snapshot.subjects) + len(snapshot.groups), SCHEMAS[REGISTRY], _LEVEL)


def decode_messages(data: bytes | memoryview, decompress: Decompress = decompressed) -> MessageRows:
    """Decodes a block of rows of messages; raises ``Corrupt``."""
    count, logs, rest = _opened(data, MESSAGES, 3, decompress)
    check_length(rest[0], count, "rows")
    entries = _decoded(MESSAGES, _entries.decode, rest[0])
    present = sum(entry.present for entry in entries)
    if any(not 0 <= entry.present <= BATCH_MESSAGES for entry in entries):
        raise Corrupt("block has a row of more messages than a batch has")
    _check_columns(rest[1], present)
    _check_logs(logs, (entry.log for entry in entries))
    columns = _decoded(MESSAGES, _columns.decode, rest[1])
    for name in FIELDS:
        texts = getattr(columns, name)
        if isinstance(texts, TextColumn) and len(texts.lengths) != _LENGTH_BYTES * present:
            raise Corrupt(f"block holds {present} messages, and {name} of {len(texts.lengths) / _LENGTH_BYTES}")
    return MessageRows(logs, entries, columns)


def decode_pulls(data: bytes | memoryview) -> PullRows:
    """Decodes a block of pull rows, without the order of ordered groups; raises ``Corrupt``."""
    count, logs, (rows,) = _opened(data, PULLS, 2)
    check_length(rows, count, "rows")
    rows_of_kind = PullRows(logs, _decoded(PULLS, _pulls.decode, rows))
    _check_logs(logs, (log for log, _, _ in rows_of_kind.rows))
    return rows_of_kind


def decode_ordered_pulls(data: bytes | memoryview) -> list[tuple[str, int, OrderedRow]]:
    """Decodes a block of pull rows with the order of ordered groups: returns the pull log, the number and the row of
    each. Raises ``Corrupt``."""
    count, logs, (rows,) = _opened(data, PULLS, 2)
    check_length(rows, count, "rows")
    decoded = _decoded(PULLS, _ordered_pulls.decode, rows)
    _check_logs(logs, (log for log, _, _ in decoded))
    return [(logs[log], row_no, row) for log, row_no, row in decoded]


def decode_dispatches(data: bytes | memoryview) -> DispatchRows:
    """Decodes a block of dispatch rows; raises ``Corrupt``."""
    count, logs, (rows,) = _opened(data, DISPATCHES, 2)
    check_length(rows, count, "rows")
    rows_of_kind = DispatchRows(logs, _decoded(DISPATCHES, _dispatches.decode, rows))
    _check_logs(logs, (log for log, _, _ in rows_of_kind.rows))
    return rows_of_kind


def decode_registry(data: bytes | memoryview) -> RegistrySnapshot:
    """Decodes a block of subjects and groups; raises ``Corrupt``."""
    payload, count = unpack(data, SCHEMAS[REGISTRY])
    subjects, groups = _split(payload, REGISTRY, 2)
    if (count_inside := (length(subjects) or 0) + (length(groups) or 0)) != count:
        raise Corrupt(f"block claims {count} subjects and groups, holds {count_inside}")
    return _decoded(REGISTRY, _registry.decode, payload)


def _opened(
    data: bytes | memoryview, kind: str, parts: int, decompress: Decompress = decompressed
) -> tuple[int, list[str], list[memoryview]]:
    """Returns the number of rows that a block claims, the logs that it lists, and its other parts, still encoded. The
    caller counts their rows before it decodes them: a kilobyte may unpack to millions of empty rows."""
    payload, count = unpack(data, SCHEMAS[kind], decompress)
    if count > MOST_ROWS:
        raise Corrupt(f"block claims {count} rows, {MOST_ROWS} are the most")
    logs, *rest = _split(payload, kind, parts)
    if (length(logs) or 0) > _MOST_LOGS:
        raise Corrupt(f"block lists {length(logs)} logs for {count} rows")
    return count, _decoded(kind, _strings.decode, logs), rest


def _split(payload: bytes | memoryview, kind: str, parts: int) -> list[memoryview]:
    check_length(payload, parts, f"parts of {kind}")
    return [memoryview(part) for part in _decoded(kind, _parts.decode, payload)]


def _check_columns(columns: memoryview, present: int) -> None:
    """Raises ``Corrupt`` unless each list has a value for each message of the block, or is missing."""
    if (length(columns, maps=True) or 0) > _MOST_FIELDS:
        raise Corrupt(f"block has {length(columns, maps=True)} fields")
    for name, values in _decoded(MESSAGES, _fields.decode, columns).items():
        value_count = length(memoryview(values))
        if name in _LISTS and value_count not in (None, present):
            raise Corrupt(f"block holds {present} messages, and {name} of {value_count}")


def _decoded(kind: str, decode: Callable[[bytes | memoryview], T], data: bytes | memoryview) -> T:
    try:
        return decode(data)
    except UNDECODABLE as error:
        raise Corrupt(f"block holds no {kind}: {error}") from error


def _check_logs(logs: Sequence[str], named: Iterable[int]) -> None:
    if any(not 0 <= log < len(logs) for log in named):
        raise Corrupt("block names a log that it does not list")
