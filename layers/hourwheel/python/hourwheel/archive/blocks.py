"""Blocks of the archive: rows of several logs of one kind, one after the other.

    kind        schema  payload, msgpack
    messages    2       [[log …], [Entry …], Columns]      rows of queues, retry, dead and schedule logs
    pulls       3       [[log …], [[log, row, PullRow] …]]
    dispatches  4       [[log …], [[log, row, Dispatched] …]]
    catalog     5       [[Subject …], [Group …]]           as they were at a moment

``log`` is a place in the first list. Pull logs are named by the partitions in which they lie, dispatch logs by their
bucket. The messages of a block are those of its entries, in their order, field by field: who turns them into columns
reads them three times as fast as message by message.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Self, TypeAlias, TypeVar

import msgspec

from hourwheel.archive.kinds import CATALOG, DISPATCHES, MESSAGES, PULLS
from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.codec import Block, pack, unpack
from hourwheel.model import Group, Message, Subject
from hourwheel.queueing.records import PullRow

T = TypeVar("T")

SCHEMAS = {MESSAGES: 2, PULLS: 3, DISPATCHES: 4, CATALOG: 5}

_LEVEL = 3


class Entry(msgspec.Struct, array_like=True, frozen=True):
    """A row of a log of messages. ``held`` of its ``count`` messages are in the block: all, or none where it is a
    filler or could not be read."""

    log: int
    row: int
    number: int
    count: int
    held: int
    at_ms: int
    expires_ms: int
    note: bytes = b""


class Columns(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The fields of messages as they were stored (see ``Message``), each for all of them; None where none has it."""

    body: list[str | None] | None = None
    body_base64: list[bytes | None] | None = None
    key: list[str | None] | None = None
    tags: list[list[str] | None] | None = None
    headers: list[dict[str, str] | None] | None = None
    id: list[str | None] | None = None
    queue: list[int | None] | None = None
    offset: list[int | None] | None = None
    attempt: list[int] | None = None
    produced_at: list[str | None] | None = None
    due_at: list[str | None] | None = None
    died_at: list[str | None] | None = None
    reason: list[str | None] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Self:
        columns = {name: [getattr(message, name) for message in messages] for name in FIELDS}
        return cls(**{name: values for name, values in columns.items() if any(v != _ABSENT.get(name) for v in values)})

    def messages(self, count: int) -> list[Message]:
        """They themselves again."""
        given = {name: values for name in FIELDS if (values := getattr(self, name)) is not None}
        return [Message(**{name: values[at] for name, values in given.items()}) for at in range(count)]


FIELDS = Columns.__struct_fields__
_ABSENT = {"attempt": 0}


class MessageRows(msgspec.Struct, array_like=True, frozen=True):
    logs: list[str]
    entries: list[Entry]
    columns: Columns

    @property
    def held(self) -> int:
        """How many messages there are."""
        return sum(entry.held for entry in self.entries)


class PullRows(msgspec.Struct, array_like=True, frozen=True):
    logs: list[str]
    rows: list[tuple[int, int, PullRow]]


class DispatchRows(msgspec.Struct, array_like=True, frozen=True):
    logs: list[str]
    rows: list[tuple[int, int, Dispatched]]


class Catalog(msgspec.Struct, array_like=True, frozen=True):
    """Subjects and groups; deleted ones until all that was theirs is erased."""

    subjects: list[Subject]
    groups: list[Group]


Content: TypeAlias = MessageRows | PullRows | DispatchRows | Catalog

_encoder = msgspec.msgpack.Encoder()
_messages = msgspec.msgpack.Decoder(MessageRows)
_pulls = msgspec.msgpack.Decoder(PullRows)
_dispatches = msgspec.msgpack.Decoder(DispatchRows)
_catalog = msgspec.msgpack.Decoder(Catalog)


def encode_messages(logs: Sequence[str], entries: Sequence[Entry], messages: Sequence[Message]) -> Block:
    return pack(_encoder.encode([logs, entries, Columns.of(messages)]), len(entries), SCHEMAS[MESSAGES], _LEVEL)


def encode_rows(kind: str, logs: Sequence[str], rows: Sequence[tuple[int, int, PullRow | Dispatched]]) -> Block:
    """A block of pull rows or of dispatch rows."""
    return pack(_encoder.encode([logs, rows]), len(rows), SCHEMAS[kind], _LEVEL)


def encode_catalog(catalog: Catalog) -> Block:
    return pack(_encoder.encode(catalog), len(catalog.subjects) + len(catalog.groups), SCHEMAS[CATALOG], _LEVEL)


def decode_messages(data: bytes | memoryview) -> MessageRows:
    """Raises ``Corrupt``."""
    found, count = _decoded(data, MESSAGES, _messages.decode)
    held = found.held
    if len(found.entries) != count:
        raise Corrupt(f"block claims {count} rows, holds {len(found.entries)}")
    for name in FIELDS:
        values = getattr(found.columns, name)
        if values is not None and len(values) != held:
            raise Corrupt(f"block holds {held} messages, and {name} of {len(values)}")
    _check_logs(found.logs, (entry.log for entry in found.entries))
    return found


def decode_pulls(data: bytes | memoryview) -> PullRows:
    """Raises ``Corrupt``."""
    found, _ = _decoded(data, PULLS, _pulls.decode)
    _check_logs(found.logs, (log for log, _, _ in found.rows))
    return found


def decode_dispatches(data: bytes | memoryview) -> DispatchRows:
    """Raises ``Corrupt``."""
    found, _ = _decoded(data, DISPATCHES, _dispatches.decode)
    _check_logs(found.logs, (log for log, _, _ in found.rows))
    return found


def decode_catalog(data: bytes | memoryview) -> Catalog:
    """Raises ``Corrupt``."""
    return _decoded(data, CATALOG, _catalog.decode)[0]


def _decoded(data: bytes | memoryview, kind: str, decode: Callable[[bytes | memoryview], T]) -> tuple[T, int]:
    payload, count = unpack(data, SCHEMAS[kind])
    try:
        return decode(payload), count
    except UNDECODABLE as error:
        raise Corrupt(f"block holds no {kind}: {error}") from error


def _check_logs(logs: Sequence[str], named: Iterable[int]) -> None:
    if any(not 0 <= log < len(logs) for log in named):
        raise Corrupt("block names a log that it does not list")
