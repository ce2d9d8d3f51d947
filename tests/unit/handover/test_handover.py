"""Messages move from a source record into a target log exactly once, wherever the process ends."""

from collections.abc import Callable
from contextlib import suppress
from typing import Self

import msgspec
import pytest

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.handover.copies import REDRIVE, RowMaker
from hourwheel.handover.handover import Transfer, carry_out, put_row, release, reserve
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row, filler
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Key, Table
from tests.support import NOON_MS, Bench
from tests.unit.archive.archiving import dying_at

SOURCE, TARGET = "orders~1/0", "orders~1/retry/billing~1"
DAY_MS = 86_400_000


class Moves(msgspec.Struct, array_like=True, frozen=True):
    """A source record that holds its open transfers and nothing else."""

    transfers: tuple[Transfer, ...] = ()

    @property
    def garbage_ms(self) -> int | None:
        return None

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        return msgspec.structs.replace(self, transfers=transfers)


def context_of(bench: Bench) -> Context:
    return bench.another_process().context


def source_record(context: Context) -> CasRecord[Moves]:
    return CasRecord(context.store, context.ids, Key(Table.META, "moves", "of-the-test"), Moves)


def sent(bench: Bench) -> None:
    context = context_of(bench)
    messages = [Message(id=name, queue=0, offset=0, attempt=1, body=name) for name in "ab"]
    context.log(SOURCE).append(context.build_row(SOURCE, messages, at_ms=NOON_MS, expires_ms=NOON_MS + DAY_MS))


def reserved(context: Context, log: str = TARGET) -> Transfer:
    return reserve(context, kind=REDRIVE, log=log, picks=((0, 0), (0, 1)), expires_ms=NOON_MS + DAY_MS)


def stored(context: Context) -> Versioned[Moves]:
    """Stores the record of a source that names one transfer."""
    current = source_record(context).swap(None, Moves((reserved(context),))).current
    assert current is not None
    return current


def builder(context: Context) -> Callable[[Transfer], Row]:
    return RowMaker(context, context.log(SOURCE), 0)


def arrived(context: Context) -> list[str | None]:
    rows = [row for _, row in context.log(TARGET).rows(0)]
    return [message.body for row in rows for message in messages_of(row, context.blobs)]


def test_a_transfer_puts_its_messages_into_the_reserved_row_and_leaves_the_record() -> None:
    bench = Bench()
    sent(bench)
    context = context_of(bench)
    done = carry_out(context, source_record(context), stored(context), builder(context))
    assert done is not None
    assert done.value.transfers == ()
    assert arrived(context) == ["a", "b"]


def test_a_process_that_repeats_a_transfer_adds_no_message() -> None:
    bench = Bench()
    sent(bench)
    context = context_of(bench)
    loaded = stored(context)
    assert put_row(context, loaded.value.transfers[0], builder(context)) is None
    carry_out(context, source_record(context), loaded, builder(context))
    assert arrived(context) == ["a", "b"]


def test_a_transfer_whose_row_a_reader_filled_goes_to_another_row_that_the_record_names_first() -> None:
    bench = Bench()
    sent(bench)
    context = context_of(bench)
    loaded = stored(context)
    (transfer,) = loaded.value.transfers
    context.log(TARGET).abandon(transfer.reservation, filler(NOON_MS, NOON_MS + DAY_MS))
    again = put_row(context, transfer, builder(context))
    assert again is not None
    assert (again.row_no, again.token) == (transfer.row_no + 1, transfer.token)
    assert arrived(context) == []
    release(context, [again])
    carry_out(context, source_record(context), loaded, builder(context))
    assert arrived(context) == ["a", "b"]


def test_a_reservation_that_no_record_names_holds_no_reader_up() -> None:
    bench = Bench()
    sent(bench)
    context = context_of(bench)
    release(context, [reserved(context)])
    carry_out(context, source_record(context), stored(context), builder(context))
    assert arrived(context) == ["a", "b"]


@pytest.mark.parametrize("after", [False, True], ids=["before it takes effect", "after it took effect"])
def test_a_process_that_ends_at_any_call_is_continued_by_the_next_one(after: bool) -> None:
    calls, left = 0, [0]
    while left[0] <= 0:
        calls += 1
        bench = Bench()
        sent(bench)
        loaded = stored(context_of(bench))
        left = [calls]
        with suppress(Unavailable):
            dying = context_of(Bench(dying_at(bench.store, left, after), bench.blobs, bench.clock))
            carry_out(dying, source_record(dying), loaded, builder(dying))
        context = context_of(bench)
        current = source_record(context).load()
        assert current is not None
        carry_out(context, source_record(context), current, builder(context))
        assert arrived(context) == ["a", "b"]
    assert calls > 3
