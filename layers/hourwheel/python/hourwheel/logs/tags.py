"""Summarises the tags of a batch in the ``meta`` of its row, so that a group with a filter passes over rows unread.

    meta      msgpack array [3, largest, tags, where]; empty: no message of the batch has a tag
    largest   the most bytes that one message of the batch takes in an answer
    tags      the distinct tags of the batch, in order; nil: too many, the batch has to be read
    where     for each tag the messages that have it, as ``index_sets.py`` encodes them (empty: all of them; nil: the
              batch has to be read); an empty array stands for nil for each tag

On AWS a summary only fills the last unit in which DynamoDB bills the row, so it costs nothing; a disk has room for
more (``Settings.summary_bytes``). If a summary does not fit, the largest sets are left out first, which are those of
the commonest tags, and then ``tags``.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.index_sets import IndexSet, every, pack, unpack
from hourwheel.logs.rows import Row, encoded_bytes
from hourwheel.model.groups import TagFilter
from hourwheel.model.messages import NewMessage, are_plain
from hourwheel.wire.answer_size import worst_size

_UNIT_BYTES = 1_024
"""DynamoDB bills a write by units of this size."""

_ITEM_BYTES = 45
"""The names of an item's attributes, its sort key, its token and its expiry."""

_UNKNOWN_BYTES = 11
"""The row has no sequence yet, which takes up to nine bytes, and its ``meta`` gets a longer header."""
_LIST_BYTES = 4
"""More than the header of the list of sets takes."""


class TagSummary(msgspec.Struct, array_like=True, frozen=True, tag=3):
    largest: int
    tags: tuple[str, ...] | None = None
    where: tuple[IndexSet | None, ...] = ()

    def matching(self, tag_filter: TagFilter, count: int) -> int | None:
        """Returns the set of messages of a batch of ``count`` that the filter takes; None if the batch has to be
        read."""
        tags = self.tags
        if tags is None:
            return None
        if not all(tag in tags for tag in tag_filter.tags_all):
            return 0
        every_index = every(count)
        matches = self._having_any(tag_filter.tags_any, every_index)
        if not matches:
            return matches
        for tag in (*tag_filter.tags_all, *tag_filter.tags_none):
            members = self._having(tag, every_index)
            if members is None:
                return None
            matches &= members if tag in tag_filter.tags_all else ~members
        return matches & every_index

    def _having_any(self, tags: Sequence[str], every_index: int) -> int | None:
        """Returns the messages that have one of these tags, all messages where none is asked for; None if the summary
        lacks them."""
        matches = 0 if tags else every_index
        for tag in tags:
            members = self._having(tag, every_index)
            if members is None:
                return None
            matches |= members
        return matches

    def _having(self, tag: str, every_index: int) -> int | None:
        """Returns the messages that have the tag; None if the summary lacks them."""
        if self.tags is None or tag not in self.tags:
            return 0
        packed = self.where[self.tags.index(tag)] if self.where else None
        return None if packed is None else unpack(packed) or every_index


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TagSummary)

_SUMMARY = b"\x94\x03"  # how each summary begins: an array of four, with the number of its kind
_NO_TAGS = b"\xc0\x90"  # how a summary without its tags ends: nil, and an empty list of sets


def with_tags(row: Row, log: str, messages: Sequence[NewMessage], spare_bytes: int = 0) -> Row:
    """Returns the row of a queue's log with the summary of its messages' tags; the row itself if none has a tag. The
    summary takes at most ``spare_bytes`` beyond the last unit in which DynamoDB bills the row."""
    for message in () if are_plain(messages) else messages:
        if message.tags:
            return msgspec.structs.replace(row, meta=encode_summary(messages, _room(row, log) + spare_bytes))
    return row


def encode_summary(messages: Sequence[NewMessage], room: int) -> bytes:
    """Returns the summary of messages of which some have tags, in at most ``room`` bytes if that is possible."""
    members: dict[str, int] = {}
    for index, message in enumerate(messages):
        for tag in message.tags or ():
            members[tag] = members.get(tag, 0) | 1 << index
    largest = max(map(worst_size, messages))
    tags, every_index = tuple(sorted(members)), every(len(messages))
    # Encoded only where the characters alone would fit: a batch may have ten thousand tags.
    if sum(map(len, tags)) >= room:
        return _encoder.encode(TagSummary(largest))
    data = _encoder.encode(TagSummary(largest, tags))
    if len(data) > room:
        return _encoder.encode(TagSummary(largest))
    packed = {tag: b"" if members[tag] == every_index else pack(members[tag]) for tag in tags}
    where = _fitting(packed, room - len(data) - len(tags) - _LIST_BYTES)
    return _encoder.encode(TagSummary(largest, tags, where)) if where else data


def _fitting(packed: Mapping[str, IndexSet], room: int) -> tuple[IndexSet | None, ...]:
    """Returns as many of the sets, the smallest first, as fit into ``room`` bytes, in the order of ``packed``."""
    sizes = {tag: len(_encoder.encode(part)) - 1 for tag, part in packed.items()}
    left = room
    fits = set()
    for tag in sorted(sizes, key=sizes.__getitem__):
        left -= sizes[tag]
        if left < 0:
            break
        fits.add(tag)
    return tuple(part if tag in fits else None for tag, part in packed.items()) if fits else ()


def has_none_of(data: bytes, tags: Sequence[bytes]) -> bool:
    """Returns True if a summary certainly says that no message has any of these tags (in UTF-8), and False if the
    summary has to be decoded to tell. Looking for the bytes of the tags takes a tenth of the time of decoding."""
    if not data.startswith(_SUMMARY) or data.endswith(_NO_TAGS):
        return False
    for tag in tags:  # noqa: SIM110 - a generator takes longer than the search
        if tag in data:
            return False
    return True


def decode_summary(data: bytes) -> TagSummary:
    try:
        summary = _decoder.decode(data)
    except UNDECODABLE as error:
        raise Corrupt(f"not a summary of tags: {error}") from error
    if summary.where and len(summary.where) != len(summary.tags or ()):
        raise Corrupt("a summary of tags says of other tags where they are")
    return summary


def _room(row: Row, log: str) -> int:
    used = encoded_bytes(row) + len(log) + _ITEM_BYTES
    return max(0, -(-used // _UNIT_BYTES) * _UNIT_BYTES - used - _UNKNOWN_BYTES)
