"""Encodes sets of indexes into a batch, each as the shorter of two forms.

    bitmap    bytes, little-endian     bit k is set for index k
    gaps      array of integers        the first index, then how many indexes lie between each index and the next one

In memory a set is an integer whose bits are the indexes, so that sets are joined, cut and compared in one operation.
"""

from collections.abc import Iterable
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
    if members.bit_count() <= size:
        gaps = _gaps(indexes_of(members))
        if sum(1 if gap < 0x80 else 3 for gap in gaps) <= size:
            return gaps
    return members.to_bytes(size, "little")


def unpack(packed: IndexSet) -> int:
    """Returns the set; raises ``Corrupt`` for one that reaches beyond the largest batch."""
    if isinstance(packed, bytes):
        if len(packed) > BATCH_MESSAGES // 8:
            raise Corrupt(f"a set of indexes takes {len(packed)} bytes")
        return int.from_bytes(packed, "little")
    members, following = 0, 0
    for gap in packed:
        following += gap
        # Checked before the shift, which would take as much memory as the number says.
        if gap < 0 or following >= BATCH_MESSAGES:
            raise Corrupt(f"a set of indexes contains {following}")
        members |= 1 << following
        following += 1
    return members


def _gaps(indexes: list[int]) -> tuple[int, ...]:
    gaps, following = [], 0
    for index in indexes:
        gaps.append(index - following)
        following = index + 1
    return tuple(gaps)
