"""Plants bugs: each leaves one clause of the protocol out of the real code.

A simulator that finds no bug in the library proves something only if it finds these.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.adapters.retrying import RetryingStore
from hourwheel.dead_letters import dead
from hourwheel.dead_letters.dead_rows import DeadState
from hourwheel.errors import Filled, OutcomeUnknown, Unavailable
from hourwheel.handover import handover
from hourwheel.handover.copies import RowMaker
from hourwheel.logs.cas import CasRecord, CasResult, Versioned
from hourwheel.logs.log import Log, Reservation
from hourwheel.logs.rows import Row, row_key, to_record
from hourwheel.model.groups import Group
from hourwheel.ports.storage import Counter, Key, Record, Table
from hourwheel.producing.batch_writer import BatchWriter
from hourwheel.producing.idempotency import IdempotencyKey, Remembered
from hourwheel.pull_log import transfers
from hourwheel.pull_log.claiming import claim_range
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import EXPIRED, OPEN, Position, PullRow, Tail
from hourwheel.settling import settle
from hourwheel.settling.leases import Leases
from hourwheel.settling.settle import Settler
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan


@dataclass(frozen=True)
class Bug:
    """``plant`` puts the bug in for a ``with`` block; only plans for which ``focus`` is true can show the bug. For a
    bug that is rarely seen, ``sharpen`` changes a drawn plan without delayed messages into one that shows it."""

    name: str
    plant: Callable[[], AbstractContextManager[None]]
    focus: Callable[[Plan], bool]
    sharpen: Callable[[Plan], Plan]


def registrar(bugs: list[Bug]) -> Callable[..., Callable[[Callable[[], Iterator[None]]], None]]:
    """Returns a decorator that adds a bug to the list, under the name of its function, which reads as a sentence."""

    def planted(
        focus: Callable[[Plan], bool] = lambda plan: True, *, sharpen: Callable[[Plan], Plan] = lambda plan: plan
    ) -> Callable[[Callable[[], Iterator[None]]], None]:
        def register(bug: Callable[[], Iterator[None]]) -> None:
            bugs.append(Bug(bug.__name__, contextmanager(bug), focus, sharpen))

        return register

    return planted


PLANTED: list[Bug] = []
planted = registrar(PLANTED)


@planted()
def a_log_forgets_its_own_token() -> Iterator[None]:
    def put(self: Log, reservation: Reservation, row: Row, token: bytes) -> None:
        whole = msgspec.structs.replace(row, first_seq=reservation.first_seq)
        if self.store.put(row_key(self.name, reservation.row_no), to_record(whole, token, 0), expect=None) is not None:
            raise Filled

    with patch.object(Log, "put", put):
        yield


@planted()
def a_slot_forgets_its_own_token() -> Iterator[None]:
    def swap(
        self: CasRecord[Any],
        before: Versioned[Any] | None,
        value: Any,
        *,
        token: bytes | None = None,
        expires_ms: int | None = None,
    ) -> CasResult[Any]:
        record = Record(msgspec.msgpack.encode(value), token or self.ids.token(), expires_ms)
        refused = self.store.put(self.key, record, expect=None if before is None else before.token)
        if refused is None:
            return CasResult(True, Versioned(value, record.token))
        own = refused.current is not None and refused.current.token == record.token
        return CasResult(False, None if own else self.opened(refused.current))

    with patch.object(CasRecord, "swap", swap):
        yield


@planted()
def a_hole_is_filled_whatever_stands_there() -> Iterator[None]:
    def fill(self: Log, hole: int, follower: Row) -> Row:
        filler = Row(first_seq=-1, count=0, at_ms=follower.at_ms, expires_ms=follower.expires_ms)
        current = self.store.get(row_key(self.name, hole))
        expect = None if current is None else current.token
        self.store.put(row_key(self.name, hole), to_record(filler, self.ids.token(), 0), expect=expect)
        return filler

    with patch.object(Log, "_fill", fill):
        yield


@planted()
def a_hole_is_passed_over_unfilled() -> Iterator[None]:
    def fill(self: Log, hole: int, follower: Row) -> Row:
        return Row(first_seq=-1, count=0, at_ms=follower.at_ms, expires_ms=follower.expires_ms)

    with patch.object(Log, "_fill", fill):
        yield


@planted()
def a_hole_in_an_eventual_read_is_believed() -> Iterator[None]:
    def read(self: Log, start: int, limit: int, *, consistent: bool = False) -> list[tuple[int, Row]]:
        found = dict(self._scan(start, limit, consistent=consistent))
        if consistent or not found:
            return real(self, start, limit, consistent=consistent)
        filler = Row(first_seq=-1, count=0, at_ms=0, expires_ms=max(row.expires_ms for row in found.values()))
        return [(number, found.get(number, filler)) for number in range(start, max(found) + 1)]

    real = Log.read
    with patch.object(Log, "read", read):
        yield


@planted()
def a_loser_claims_on_from_its_own_start() -> Iterator[None]:
    def swap(self: CasRecord[Any], before: Versioned[Any] | None, value: Any, **rest: Any) -> CasResult[Any]:
        outcome = real(self, before, value, **rest)
        if isinstance(value, PullRow) and before is None and not outcome.stored and outcome.current is not None:
            stale = msgspec.structs.replace(outcome.current.value, end=value.first)
            return CasResult(False, Versioned(stale, outcome.current.token))
        return outcome

    real = CasRecord.swap
    with patch.object(CasRecord, "swap", swap):
        yield


@planted()
def a_claim_overwrites_another() -> Iterator[None]:
    with patch.object(CasRecord, "swap", _blind(lambda before, value: before is None and isinstance(value, PullRow))):
        yield


@planted()
def a_settlement_does_not_compare_the_token() -> Iterator[None]:
    with patch.object(
        CasRecord, "swap", _blind(lambda before, value: before is not None and isinstance(value, PullRow))
    ):
        yield


def _blind(when: Callable[[Versioned[Any] | None, Any], bool]) -> Callable[..., CasResult[Any]]:
    """Replaces ``CasRecord.swap`` by one that ignores the token."""
    real = CasRecord.swap

    def swap(self: CasRecord[Any], before: Versioned[Any] | None, value: Any, **rest: Any) -> CasResult[Any]:
        if when(before, value):
            current = self.store.get(self.key)
            before = None if current is None else Versioned(value, current.token)
        return real(self, before, value, **rest)

    return swap


@planted()
def a_receipt_is_accepted_after_its_lease_was_ended() -> Iterator[None]:
    def finish(self: Settler, number: int, current: Versioned[PullRow]) -> Versioned[PullRow]:
        done = real(self, number, current)
        if done.value.outcome != EXPIRED:
            return done
        return Versioned(msgspec.structs.replace(done.value, state=OPEN, outcome=0), done.token)

    real = Settler.finish
    with patch.object(Settler, "finish", finish):
        yield


@planted()
def an_ended_lease_forgets_what_was_settled() -> Iterator[None]:
    def expire(self: Settler, number: int, current: Versioned[PullRow]) -> bool:
        current = self.finish(number, current)
        return real(self, number, Versioned(msgspec.structs.replace(current.value, settled=frozenset()), current.token))

    real = Settler.expire
    with patch.object(Settler, "expire", expire):
        yield


@planted()
def a_lease_is_ended_whatever_its_time() -> Iterator[None]:
    def expire(self: Leases, log: PullLog, subject: Any, **limits: Any) -> int:
        watch = self._watch(log)
        watch.open = {row: entry._replace(due_ms=0) for row, entry in watch.open.items()}
        return real(self, log, subject, **limits)

    def swap(self: Settler, number: int, current: Versioned[PullRow]) -> bool:
        early = Versioned(msgspec.structs.replace(current.value, lease_until_ms=0), current.token)
        return real_expire(self, number, early)

    real, real_expire = Leases.expire, Settler.expire
    with patch.object(Leases, "expire", expire), patch.object(Settler, "expire", swap):
        yield


@planted(lambda plan: plan.quiet_days)
def the_checkpoint_is_ignored_when_rows_are_gone() -> Iterator[None]:
    def beginning(self: PullLog, checkpoint: object = None) -> Tail:
        return Tail(0, Position(0), 0)

    with patch.object(PullLog, "beginning", beginning):
        yield


@planted()
def the_checkpoint_passes_an_open_row() -> Iterator[None]:
    def save(self: Leases, log: PullLog, start: Tail) -> None:
        real(self, log, self._watch(log).scanned or start)

    real = Leases._save
    with patch.object(Leases, "_save", save):
        yield


@planted()
def a_retry_is_put_before_it_is_recorded() -> Iterator[None]:
    def swap(self: Settler, number: int, current: Versioned[PullRow], value: PullRow) -> CasResult[PullRow]:
        row = RowMaker(self.context, self.log.source, self.log.queue)
        for transfer in value.transfers:
            handover.put_row(self.context, transfer, row)
        return real(self, number, current, value)

    real = Settler._swap
    with patch.object(Settler, "_swap", swap):
        yield


@planted()
def a_hand_over_is_closed_before_it_is_put() -> Iterator[None]:
    def carry_out(context: Any, record: CasRecord[Any], current: Versioned[Any], row: Any) -> Versioned[Any] | None:
        value = current.value.left_with(())
        closed = record.swap(current, value, expires_ms=value.garbage_ms)
        if closed.stored:
            for transfer in current.value.transfers:
                handover.put_row(context, transfer, row)
        return closed.current

    with patch.object(transfers, "carry_out", carry_out), patch.object(dead, "carry_out", carry_out):
        yield


def _many_retries_and_long_pauses(plan: Plan) -> Plan:
    return replace(
        plan,
        transactional=False,
        faults=Faults(pause=0.12, crash=0.01, late=0.05),
        long_pauses=True,
        producers=2,
        consumers=3,
        sweepers=2,
        operators=0,
        lease_seconds=1,
        max_attempts=16,
        groups=("a",),
        calls=350,
        switch=0.5,
        skew_ms=0,
        retention_seconds=259_200,
        quiet_days=False,
    )


@planted(sharpen=_many_retries_and_long_pauses)
def a_filled_reservation_is_replaced_without_a_record() -> Iterator[None]:
    def put_row(context: Any, transfer: handover.Transfer, row: Any) -> None:
        log = context.log(transfer.log)
        reservation = transfer.reservation
        while True:
            try:
                log.put(reservation, row(transfer), transfer.token)
                return
            except Filled:
                reservation = log.reserve(len(transfer.picks))

    with patch.object(handover, "put_row", put_row):
        yield


@planted()
def a_redrive_does_not_mark_what_it_sent() -> Iterator[None]:
    def swap(self: CasRecord[Any], before: Versioned[Any] | None, value: Any, **rest: Any) -> CasResult[Any]:
        if isinstance(value, DeadState):
            value = msgspec.structs.replace(value, done=frozenset())
        return real(self, before, value, **rest)

    real = CasRecord.swap
    with patch.object(CasRecord, "swap", swap):
        yield


@planted()
def a_batch_is_put_before_its_key_is_recorded() -> Iterator[None]:
    def store_once(self: Any, idempotency: IdempotencyKey, keyspace: str) -> Any:
        record = CasRecord(self.context.store, self.context.ids, Key(Table.KEYS, "late", idempotency.key), Remembered)
        current = record.load()
        if current is not None:
            return self._repeat(current, idempotency, keyspace)
        stored = self.store()
        inputs = replace(self._inputs(), batch=stored.prefix)
        record.swap(None, self._offer(idempotency, inputs, self.context.ids.token(), stored.reservations))
        return stored

    with patch.object(BatchWriter, "store_once", store_once):
        yield


@planted(sharpen=lambda plan: replace(plan, keyed=1.0, numbered=True))
def a_batch_with_an_earlier_number_is_taken_for_a_new_one() -> Iterator[None]:
    def answers(self: Remembered, sequence: int | None, at_ms: int) -> bool:
        return self.ends_ms > at_ms and self.sequence == sequence

    with patch.object(Remembered, "answers", answers):
        yield


@planted()
def a_lost_counter_answer_is_guessed() -> Iterator[None]:
    def add(self: RetryingStore, counter: str, *, rows: int, numbers: int) -> Counter:
        try:
            return self._store.add(counter, rows=rows, numbers=numbers)
        except OutcomeUnknown:
            guess = self.counter(counter)
            return guess if guess.rows and guess.numbers >= numbers else self.add(counter, rows=rows, numbers=numbers)

    with patch.object(RetryingStore, "add", add):
        yield


@planted()
def success_is_answered_before_the_row_is_stored() -> Iterator[None]:
    def put(self: Log, reservation: Reservation, row: Row, token: bytes) -> None:
        try:
            real(self, reservation, row, token)
        except Unavailable:
            return

    real = Log.put
    with patch.object(Log, "put", put):
        yield


@planted()
def retries_of_all_groups_share_a_log() -> Iterator[None]:
    shared = property(lambda group: f"{group.subject}~{group.subject_generation}/retry/all~1")
    with patch.object(Group, "retry_log", shared):
        yield


@planted()
def the_trim_mark_moves_one_row_too_far() -> Iterator[None]:
    def trim(self: Log, below: int) -> None:
        real(self, below + 1)

    real = Log.trim
    with patch.object(Log, "trim", trim):
        yield


@planted()
def a_message_is_dropped_when_its_lease_ends() -> Iterator[None]:
    def reserve(self: Settler, row: PullRow, parsed: settle.ParsedSettlement) -> tuple[handover.Transfer, ...]:
        return () if not parsed.mark else real(self, row, parsed)

    real = Settler._reserve
    with patch.object(Settler, "_reserve", reserve):
        yield


@planted()
def a_claim_that_ends_within_a_batch_says_that_it_ends_behind_it() -> Iterator[None]:
    def add(self: Any, number: int, row: Row, skip: int, count: int, usable: int) -> None:
        real(self, number, row, skip, count, usable)
        if not row.filler:
            self.end_seq = row.first_seq + row.count

    real = claim_range.ClaimRange.add
    with patch.object(claim_range.ClaimRange, "add", add):
        yield


def _deadly(plan: Plan) -> Plan:
    """Sharpens a plan: writers crash between a reservation and its row, so ends of logs stay open."""
    return replace(plan, faults=replace(plan.faults, crash=0.06))


@planted(sharpen=_deadly)
def what_never_came_at_the_end_of_a_log_waits_for_ever() -> Iterator[None]:
    with patch.object(Log, "fill_end", lambda log, end, expires_ms: True):
        yield


@planted(lambda plan: "delete-subject" in plan.moves)
def a_deleted_subject_still_takes_messages() -> Iterator[None]:
    def seal(self: Log) -> Counter:
        name = self.name.rpartition("/")[2]
        return self.totals() if name.isdigit() and not self.name.startswith("schedule/") else real(self)

    real = Log.seal
    with patch.object(Log, "seal", seal):
        yield
