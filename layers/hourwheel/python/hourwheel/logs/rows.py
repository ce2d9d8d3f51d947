"""Encodes the rows of queue, retry, dead and schedule logs, and names their keys.

    table      consume               schedule
    partition  {log}                 {log}      the log's name, e.g. orders~1/0, schedule/{bucket}
    sort       {row:016d}            {row:016d}
    value      msgpack array [first_seq, count, at_ms, expires_ms, raw_bytes, block, large_batch, meta, answer_bytes,
               cuts, prefix]

``first_seq`` is the sequence of the row's first message. A filler has ``count`` 0: its number was never used. A batch
lies in ``block``; a large one lies in an object, at the position ``large_batch``: [key, offset, length]. A row with
``expires_ms`` 0 does not expire: rows of schedule logs are removed with their bucket. Their ``meta`` is drawn in
``entries.py``. ``answer_bytes`` and ``cuts`` say how much the messages take in an answer (``wire/answer_size.py``). A
message that is stored without an id has the id ``{prefix}-{index}``, with its index in the row.
"""

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.model.log_names import is_schedule
from hourwheel.ports.storage import Key, Record, Table


class LargeBatchRef(msgspec.Struct, array_like=True, frozen=True):
    """The position of a block in an object of large batches."""

    key: str
    offset: int
    length: int


class Row(msgspec.Struct, array_like=True, frozen=True):
    first_seq: int
    count: int
    at_ms: int
    expires_ms: int
    raw_bytes: int = 0
    block: bytes = b""
    large_batch: LargeBatchRef | None = None
    meta: bytes = b""
    answer_bytes: int = 0
    cuts: tuple[int, ...] = ()
    prefix: str = ""

    @property
    def filler(self) -> bool:
        """Whether the row holds no messages."""
        return self.count == 0

    def together(self, index: int) -> int:
        """Returns how many messages from this index on fit into one answer; 0 behind the last message."""
        end = next((cut for cut in self.cuts if cut > index), self.count) if self.cuts else self.count
        return max(0, end - index)

    def id_of(self, index: int) -> str:
        """Returns the id of the message at this index, if it is stored without one."""
        return f"{self.prefix}-{index}"

    def live(self, now_ms: int) -> bool:
        """Returns whether the row has not expired at ``now_ms``."""
        return self.expires_ms == 0 or self.expires_ms > now_ms


def filler(at_ms: int, expires_ms: int, meta: bytes = b"") -> Row:
    """Returns a row without messages, which takes a row number and no sequence."""
    return Row(first_seq=-1, count=0, at_ms=at_ms, expires_ms=expires_ms, meta=meta)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)


def table_of(log: str) -> Table:
    return Table.SCHEDULE if is_schedule(log) else Table.CONSUME


def sort_of(row_no: int) -> str:
    return f"{row_no:016d}"


def row_key(log: str, row_no: int) -> Key:
    return Key(table_of(log), log, sort_of(row_no))


def encoded_bytes(row: Row) -> int:
    """Returns the size of the row's record."""
    return len(_encoder.encode(row))


def to_record(row: Row, token: bytes, garbage_after_ms: int) -> Record:
    expires_ms = row.expires_ms + garbage_after_ms if row.expires_ms else None
    return Record(_encoder.encode(row), token, expires_ms)


def from_record(record: Record) -> Row:
    try:
        return _decoder.decode(record.value)
    except UNDECODABLE as error:
        raise Corrupt(f"not a log row: {error}") from error
