"""Says in the ``meta`` of a row of a retry log which of its messages are suspects. A claim hands each out alone.

    meta      msgpack array [4, indexes]; empty: the row has no suspect
    indexes   the suspects, as ``index_sets.py`` encodes them

A suspect is a message whose lease ended while a consumer held it: it may be the one that ended the consumer.
"""

from collections.abc import Sequence

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.index_sets import IndexSet, pack_indexes, unpack_indexes
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message


class _Suspects(msgspec.Struct, array_like=True, frozen=True, tag=4):
    indexes: IndexSet


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Suspects)


def with_suspects(row: Row, messages: Sequence[Message]) -> Row:
    """Returns the row of a retry log that holds these messages, with the suspects among them; the row itself if there
    is none."""
    indexes = [index for index, message in enumerate(messages) if message.suspect]
    return msgspec.structs.replace(row, meta=_encoder.encode(_Suspects(pack_indexes(indexes)))) if indexes else row


def suspects_of(row: Row) -> Sequence[int]:
    """Returns the ascending indexes of the suspects of a row of a retry log. Raises ``Corrupt``."""
    if not row.meta:
        return ()
    try:
        return unpack_indexes(_decoder.decode(row.meta).indexes)
    except UNDECODABLE as error:
        raise Corrupt(f"not the suspects of a row: {error}") from error
