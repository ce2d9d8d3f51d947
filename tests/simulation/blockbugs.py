"""Plants bugs of answers in msgpack, whose messages come in blocks as they are stored: see ``bugs.py``."""

from collections.abc import Iterator, Sequence
from random import Random
from unittest.mock import patch

import msgspec

from hourwheel.logs.partial_rows import PartialRows
from hourwheel.logs.rows import Row
from hourwheel.model.pulls import MessageBlock
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log import message_blocks
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import filtered
from tests.simulation.plan import Plan

BLOCKS: list[Bug] = []
planted = registrar(BLOCKS)


def _filters(plan: Plan) -> Plan:
    return filtered(plan, Random(plan.seed))


@planted()
def a_block_from_the_middle_of_a_row_has_the_positions_of_its_start() -> Iterator[None]:
    def block(row: Row, index: int, messages: msgspec.Raw, queue: int | None) -> MessageBlock:
        return real(row, 0, messages, queue)

    real = message_blocks._block
    with patch.object(message_blocks, "_block", block):
        yield


@planted(sharpen=_filters)
def a_block_of_messages_between_others_forgets_their_indexes() -> Iterator[None]:
    def picked(row: Row, raw: list[msgspec.Raw], indexes: Sequence[int], queue: int | None) -> MessageBlock:
        found = real(row, raw, indexes, queue)
        found.indexes = None
        return found

    real = message_blocks.picked_block
    with patch.object(message_blocks, "picked_block", picked):
        yield


@planted()
def a_part_of_a_row_has_the_messages_of_another_part() -> Iterator[None]:
    def messages_of(self: PartialRows, log: str, row: Row, blobs: Blobs) -> list[msgspec.Raw]:
        raw = real(self, log, row, blobs)
        return [*raw[-1:], *raw[:-1]]

    real = PartialRows.messages_of
    with patch.object(PartialRows, "messages_of", messages_of):
        yield
