"""Encodes sets of indexes into a batch, each as the shorter of two forms.

    bitmap    bytes, little-endian     bit k is set for index k
    gaps      array of integers        the first index, then how many indexes lie between each index and the next one

In memory a set is an integer whose bits are the indexes, so that a union, an intersection or a comparison of two sets
is one operation.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from hourwheel.errors import Corrupt
from hourwheel.model.fields import BATCH_MESSAGES

IndexSet: TypeAlias = bytes | tuple[int, ...]
"""A set of indexes as it is stored."""


def every(count: int) -> int:
    """Returns the set of all indexes of a batch of ``count`` messages."""
    return (1 << count) - 1


def set_of(indexes: Iterable[int]) -> int:
    index_set = 0
    for index in indexes:
        index_set |= 1 << index
    return index_set


def indexes_of(members: int) -> list[int]:
    """Returns the indexes of a set in ascending order."""
    indexes = []
    while members:
        lowest = members & -members
        indexes.append(lowest.bit_length() - 1)
        members ^= lowest
    return indexes


def pack(members: int) -> IndexSet:
    """Returns the set in its shorter form."""
    size = (members.bit_length() + 7) // 8
    # Each gap takes a byte at least: of more indexes than the bitmap has bytes, the gaps are not even computed.
    gaps = _short_gaps(indexes_of(members), size) if members.bit_count() <= size else None
    return members.to_bytes(size, "little") if gaps is None else gaps


def pack_indexes(indexes: Sequence[int]) -> IndexSet:
    """Returns the set of these ascending indexes as ``pack`` does, without a set in memory where they are few."""
    size = indexes[-1] // 8 + 1 if indexes else 0
    gaps = _short_gaps(indexes, size) if len(indexes) <= size else None
    return set_of(indexes).to_bytes(size, "little") if gaps is None else gaps


def unpack(packed: IndexSet) -> int:
    """Returns the set; raises ``Corrupt`` for one that reaches beyond the largest batch."""
    if isinstance(packed, bytes):
        if len(packed) > BATCH_MESSAGES // 8:
            raise Corrupt(f"a set of indexes takes {len(packed)} bytes")
        return int.from_bytes(packed, "little")
    return set_of(unpack_indexes(packed))


def unpack_indexes(packed: IndexSet) -> list[int]:
    """Returns the indexes of a set in ascending order; raises ``Corrupt`` where ``unpack`` does."""
    if isinstance(packed, bytes):
        return indexes_of(unpack(packed))
    indexes, following = [], 0
    for gap in packed:
        following += gap
        # Checked before it is a set, which would take as much memory as the number says.
        if gap < 0 or following >= BATCH_MESSAGES:
            raise Corrupt(f"a set of indexes contains {following}")
        indexes.append(following)
        following += 1
    return indexes


def _short_gaps(indexes: Sequence[int], size: int) -> tuple[int, ...] | None:
    """Returns the gaps between the indexes; None if a bitmap of ``size`` bytes is shorter."""
    gaps, following, taken = [], 0, 0
    for index in indexes:
        gap = index - following
        gaps.append(gap)
        taken += 1 if gap < 0x80 else 3  # what msgpack takes for a number of a batch, whose gaps are below 1,000
        following = index + 1
    return tuple(gaps) if taken <= size else None
