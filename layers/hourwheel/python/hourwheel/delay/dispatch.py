"""Hands due messages over. Reserves rows in the target logs, writes one dispatch row that names them, and
puts the rows.

The next owner of the bucket repeats the puts that the last dispatch row names.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.delay.orphans import register_orphan
from hourwheel.delay.ownership import Fenced, Ownership
from hourwheel.delay.schedule_rows import DecodedRow, ScheduleRowCache
from hourwheel.delay.timing import unpack
from hourwheel.delay.unavailable_cells import UnavailableCells
from hourwheel.errors import CellUnavailable, Corrupt, Filled, NotFound, Sealed
from hourwheel.handover.handover import Transfer, release
from hourwheel.log_names import HOME, LogName, Member, cell_of, shared_name
from hourwheel.logs.codec import decode_one
from hourwheel.logs.entries import DueTimes
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.logs.tags import with_tags
from hourwheel.model.fields import BATCH_BYTES, BATCH_MESSAGES, DEAD_RETENTION_MS
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.queueing.routing import delayed_batch, queue_of
from hourwheel.registry.moves import refresh_route
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

DUE, AGAIN, ORPHANED, DROPPED, DAMAGED = "due", "again", "orphaned", "dropped", "damaged"
"""Where a transfer's messages go: to the subject's queue; to a group's retry log; to the dead log of a deleted subject;
nowhere, because their group was deleted; nowhere, because they cannot be read."""

_STEP_PICKS = 5_000
_STEP_BATCHES = 500
_STEP_BATCHES_ABROAD = 100
"""A step hands over at most this many messages, in batches for at most this many targets, of which the last number may
be in other cells. With the longest names, and the open transfers of ``UnavailableCells``, its dispatch row stays below
350 KB."""

_logger = logging.getLogger("hourwheel")

_STEP_BYTES = 16 << 20  # a step's messages are in memory at once, decoded and encoded

Pick: TypeAlias = tuple[int, int]
"""A message's row and index in the schedule log."""


@dataclass(frozen=True)
class Target:
    """Where messages go, and how long they are kept there. Without a log they are dropped."""

    kind: str
    log: str
    keep_ms: int = 0
    subject: str = ""
    group: str | None = None


@dataclass(eq=False)
class OutgoingBatch:
    """Messages of one bucket for one target log, where they become one row."""

    target: Target
    due_times: DueTimes
    picks: list[Pick] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    earliest_ms: int = 0
    """When the first of the messages was due."""
    named: Transfer | None = None
    """The transfer in a dispatch row that names these messages already, and whose row was filled."""

    @property
    def still_named(self) -> Transfer | None:
        """The former transfer, of these messages alone."""
        return self.named and msgspec.structs.replace(self.named, picks=tuple(self.picks))

    def fits(self, size: int) -> bool:
        return len(self.picks) < BATCH_MESSAGES and (not self.picks or self.size + size <= BATCH_BYTES)

    def add(self, pick: Pick, message: Message | None, size: int, due_ms: int) -> None:
        self.picks.append(pick)
        self.size += size
        self.earliest_ms = min(self.earliest_ms or due_ms, due_ms)
        if message is not None:
            self.messages.append(message)


@dataclass
class _Step:
    """The batches of one step: those with their reservations and rows, and how each ended."""

    ready: list[tuple[OutgoingBatch, Transfer, Row | None]] = field(default_factory=list)
    closed: list[OutgoingBatch] = field(default_factory=list)
    held: list[OutgoingBatch] = field(default_factory=list)
    filled: list[OutgoingBatch] = field(default_factory=list)
    open: list[Transfer] = field(default_factory=list)
    done: list[OutgoingBatch] = field(default_factory=list)


@dataclass
class Dispatcher:
    """Hands the messages of one bucket over, each step recorded in the dispatch log. For one thread."""

    context: Context
    registry: Registry
    bucket: Bucket
    ownership: Ownership
    row_cache: ScheduleRowCache
    cells: UnavailableCells

    def dispatch(self, positions: Sequence[int]) -> Iterator[None]:
        """Hands over the due messages at these packed positions, and yields after each step. Holds those back whose
        cell is out of reach. Raises ``Fenced``, and the errors of the home store: the next owner then finishes what the
        dispatch log names."""
        for i in range(0, len(positions), _STEP_PICKS):
            rest = [unpack(packed) for packed in positions[i : i + _STEP_PICKS]]
            while rest:
                batches, rest = self._batches(rest)
                while batches:
                    batches = self._hand_over(batches)
                yield

    def finish(self, transfers: Iterable[Transfer]) -> None:
        """Repeats the puts of these transfers, the last ones of the dispatch log. Hands batches over anew whose rows
        were filled."""
        self.cells.open = [transfer for transfer in transfers if transfer.log]
        self.put_open()

    def put_open(self) -> None:
        """Repeats the puts of the open transfers, except those in cells that are out of reach. Hands batches over anew
        whose rows were filled."""
        left: list[Transfer] = []
        anew: list[OutgoingBatch] = []
        for transfer in self.cells.open:
            if self.cells.pauses(transfer.log):
                left.append(transfer)
                continue
            try:
                batch = self._put_again(transfer)
            except CellUnavailable as error:
                self.cells.failed(transfer.log, error)
                left.append(transfer)
                continue
            self.cells.reached(transfer.log)
            if batch is not None:
                anew.append(replace(batch, named=transfer))
        self.cells.open = left
        while anew:
            anew = self._hand_over(anew)

    def _put_again(self, transfer: Transfer) -> OutgoingBatch | None:
        """Puts the row of a transfer. Returns its batch if that has to be handed over anew."""
        if self._expired(transfer):
            return None
        batch = self._batch_of(transfer)
        if self._trimmed(transfer):
            # A filler was in the row and has expired: nobody reads below the trim mark, so the batch goes elsewhere.
            # Or the batch was in the row and has expired just now: then nothing is left to do.
            return batch if transfer.expires_ms > self.context.clock.now_ms() else None
        row = self._row(batch, transfer.at_ms, transfer.expires_ms, transfer.log)
        try:
            if self._put(self.context, transfer, row):
                self._announce([batch])
        except Filled:
            return batch
        return None

    def _expired(self, transfer: Transfer) -> bool:
        """Returns whether the transfer's row has expired and is trimmed."""
        return transfer.expires_ms <= self.context.clock.now_ms() and self._trimmed(transfer)

    def _trimmed(self, transfer: Transfer) -> bool:
        log = self.context.log(transfer.log)
        return transfer.row_no < log.trimmed() and log.get(transfer.row_no) is None

    def _hand_over(self, batches: Sequence[OutgoingBatch]) -> list[OutgoingBatch]:
        """Hands the batches over in one step. Returns those to hand over anew, because their row was filled or their
        log sealed. Holds those back whose cell is out of reach."""
        at_ms = self.ownership.time()
        for log in dict.fromkeys(batch.target.log for batch in batches if batch.target.kind == ORPHANED):
            register_orphan(self.context, log)
        rows, held = self._rows(batches, at_ms)

        def work(context: Context) -> _Step:
            step = _Step(held=list(held))
            self._reserve(context, rows, at_ms, step)
            if step.ready:
                # What is named already and not in this row, the next owner would not find.
                former = [batch.still_named for batch in (*step.closed, *step.held)]
                transfers = [transfer for _, transfer, _ in step.ready]
                named = (*transfers, *self.cells.open, *(transfer for transfer in former if transfer))
                try:
                    self.ownership.append(context, named)
                except Fenced:
                    release(context, [transfer for transfer in transfers if transfer.log])
                    raise
            self._put_rows(context, step)
            return step

        step = self.context.atomically(work, [HOME, *(batch.target.log for batch in batches)])
        return self._after(step)

    def _rows(
        self, batches: Sequence[OutgoingBatch], at_ms: int
    ) -> tuple[list[tuple[OutgoingBatch, Row | None]], list[OutgoingBatch]]:
        """Returns the batches with their rows, and those whose cell is out of reach."""
        rows: list[tuple[OutgoingBatch, Row | None]] = []
        held = []
        for batch in batches:
            log = batch.target.log
            if self.cells.waits(log):
                held.append(batch)
                continue
            try:
                rows.append((batch, self._row(batch, at_ms, at_ms + batch.target.keep_ms, log) if log else None))
            except CellUnavailable as error:
                self.cells.failed(log, error)
                held.append(batch)
        return rows, held

    def _reserve(
        self, context: Context, rows: Sequence[tuple[OutgoingBatch, Row | None]], at_ms: int, step: "_Step"
    ) -> None:
        """Reserves a row for each batch."""
        for batch, row in rows:
            try:
                transfer = self._reserved(context, batch, at_ms)
            except CellUnavailable as error:
                self.cells.failed(batch.target.log, error)
                step.held.append(batch)
                continue
            if transfer is None:
                step.closed.append(batch)
            else:
                step.ready.append((batch, transfer, row))

    def _put_rows(self, context: Context, step: "_Step") -> None:
        for batch, transfer, row in step.ready:
            if row is None:
                step.done.append(batch)
                continue
            try:
                self._put(context, transfer, row)
            except Filled:
                step.filled.append(replace(batch, named=transfer))
            except CellUnavailable as error:
                self.cells.failed(transfer.log, error)
                step.open.append(transfer)
            else:
                step.done.append(batch)

    def _after(self, step: "_Step") -> list[OutgoingBatch]:
        """Takes note of what a step has left. Returns the batches to hand over anew."""
        self.cells.open += step.open
        for batch in step.held:
            self._hold(batch)
        for batch in step.done:
            self.cells.reached(batch.target.log)
        self._announce(step.done)
        return step.filled + [anew for batch in step.closed for anew in self._redirected(batch)]

    def _hold(self, batch: OutgoingBatch) -> None:
        """Keeps a batch whose cell is out of reach. A batch that the dispatch log names stays an open transfer: nobody
        would look for its messages in the schedule log."""
        named = batch.still_named
        if named is None:
            self.cells.hold(batch.target.log, batch.picks)
        else:
            self.cells.open.append(named)

    def _reserved(self, context: Context, batch: OutgoingBatch, at_ms: int) -> Transfer | None:
        """Reserves a row for the batch, and returns the transfer; None when the log is sealed."""
        reservation = Reservation(batch.target.log, 0, 0)
        if batch.target.log:
            try:
                reservation = context.log(batch.target.log).reserve(len(batch.picks))
            except Sealed:
                return None
        return Transfer(
            kind=batch.target.kind,
            log=batch.target.log,
            row_no=reservation.row_no,
            first_seq=reservation.first_seq,
            token=context.ids.token(),
            at_ms=at_ms,
            expires_ms=at_ms + batch.target.keep_ms,
            picks=tuple(batch.picks),
        )

    def _put(self, context: Context, transfer: Transfer, row: Row) -> bool:
        return context.log(transfer.log).put(transfer.reservation, row, transfer.token)

    def _row(self, batch: OutgoingBatch, at_ms: int, expires_ms: int, log: str) -> Row:
        """Returns the row that contains the batch. Every caller builds it with equal messages, so that a repeated put
        changes nothing."""
        messages = batch.messages
        if batch.target.kind == ORPHANED:
            died_at = rfc3339(at_ms)
            messages = [
                msgspec.structs.replace(message, died_at=died_at, reason="subject-deleted") for message in messages
            ]
        row = self.context.build_row(log, messages, at_ms=at_ms, expires_ms=expires_ms)
        return with_tags(row, log, messages) if batch.target.kind == DUE else row

    def _batches(
        self, picks: Sequence[Pick], most_abroad: int = _STEP_BATCHES_ABROAD
    ) -> tuple[list[OutgoingBatch], list[Pick]]:
        """Returns the messages at these positions as one batch for each row of a target, in order, and the positions
        that would be too much for one step. At most ``most_abroad`` batches are for other cells."""
        read, rest = self._read(picks), []
        routing = _Routing(self)
        open_batches: dict[str, OutgoingBatch] = {}
        batches: list[OutgoingBatch] = []
        abroad = 0
        for pick in picks:
            entry = read.get(pick)
            if entry is None:
                rest.append(pick)
                continue
            due_times, message, size = entry
            target, target_key = routing.of(pick[0], due_times, message)
            batch = open_batches.get(target_key)
            if batch is None or not batch.fits(size):
                away = cell_of(target.log) != HOME
                if len(batches) == _STEP_BATCHES or (away and abroad == most_abroad):
                    open_batches.pop(target_key, None)  # to keep the order, later messages of the target wait, too
                    rest.append(pick)
                    continue
                batch = open_batches[target_key] = OutgoingBatch(target, due_times)
                batches.append(batch)
                abroad += away
            batch.add(pick, message, size, due_times.due_ms(pick[1]))
        return batches, rest

    def _read(self, picks: Iterable[Pick]) -> dict[Pick, tuple[DueTimes, Message | None, int]]:
        """Returns the due times, the message (None: it cannot be read) and its size by position, up to the bytes of one
        step."""
        by_row: dict[int, list[int]] = {}
        for row_no, index in picks:
            by_row.setdefault(row_no, []).append(index)
        read: dict[Pick, tuple[DueTimes, Message | None, int]] = {}
        total = 0
        for row_no, page in self.row_cache.each(sorted(by_row)):
            due_times, raw = page.due_times, page.raw
            for index in by_row[row_no]:
                size = len(raw[index]) if raw else 0
                read[row_no, index] = due_times, _message(page, index), size
                total += size
            if total > _STEP_BYTES:
                break
        return read

    def _batch_of(self, transfer: Transfer) -> OutgoingBatch:
        """Returns the batch that a transfer hands over, read again from the schedule log."""
        indexes: dict[int, list[int]] = {}
        for row_no, index in transfer.picks:
            indexes.setdefault(row_no, []).append(index)
        messages: dict[Pick, Message | None] = {}
        for row_no, page in self.row_cache.each(sorted(indexes)):
            due_times = page.due_times
            messages |= {(row_no, index): _message(page, index) for index in indexes[row_no]}
        member = LogName.parse(transfer.log).member if transfer.kind == AGAIN else None
        keep_ms = transfer.expires_ms - transfer.at_ms
        target = Target(transfer.kind, transfer.log, keep_ms, due_times.subject, member.group if member else None)
        batch = OutgoingBatch(target, due_times)
        for pick in transfer.picks:
            batch.add(pick, messages[pick], 0, 0)
        return batch

    def _resolve(self, due_times: DueTimes) -> tuple[Subject | None, Target | None]:
        """Returns the subject, if the queue depends on the message; otherwise the target of all messages of the row."""
        try:
            subject = self.registry.subject(due_times.subject)
            if subject.generation < due_times.generation:
                self.registry.forget(due_times.subject)
                subject = self.registry.subject(due_times.subject)
        except NotFound:
            subject = None
        if subject is None or subject.generation != due_times.generation:
            return None, self._orphan_target(due_times)
        if due_times.member is None:
            return subject, None
        member = Member.parse(due_times.member)
        log = str(LogName.of_retries(due_times.subject, due_times.generation, member))
        return subject, Target(AGAIN, log, subject.retention_ms, due_times.subject, member.group)

    def _orphan_target(self, due_times: DueTimes) -> Target:
        """Returns the target of messages whose subject or group was deleted."""
        if due_times.member is not None:
            return Target(DROPPED, "")
        log = str(LogName.of_orphans(due_times.subject, due_times.generation))
        return Target(ORPHANED, log, DEAD_RETENTION_MS, due_times.subject)

    def _redirected(self, batch: OutgoingBatch) -> list[OutgoingBatch]:
        """Returns the messages of a batch with other targets: its log was sealed, because its queue has moved or its
        subject or group was deleted."""
        name = batch.due_times.subject
        if batch.target.kind != DUE:
            self.registry.forget(name)
            return [replace(batch, target=self._orphan_target(batch.due_times))]
        try:
            with suppress(NotFound):
                refresh_route(self.registry, self.registry.subject(name))
        except CellUnavailable as error:
            self.cells.failed(batch.target.log, error)
            self._hold(batch)
            return []
        batches, rest = self._batches(batch.picks, _STEP_BATCHES)
        assert not rest  # a batch is smaller than a step
        return [replace(anew, named=batch.named) for anew in batches]

    def _announce(self, batches: Iterable[OutgoingBatch]) -> None:
        """Wakes the pulls that wait for the messages, counts them, and logs orphans for the operator."""
        for batch in batches:
            target = batch.target
            meter = self.context.meter
            if target.kind in (DUE, AGAIN):
                group = None if target.group is None else shared_name(target.group)
                self.context.wakeups.announce(target.subject, group)
                meter.record("Dispatched", len(batch.picks))
                if batch.earliest_ms:
                    late_ms = self.context.clock.now_ms() - batch.earliest_ms
                    meter.record("DispatchLateness", late_ms, unit="Milliseconds")
            elif target.kind == ORPHANED:
                meter.record("OrphanedMessages", len(batch.picks))
                _logger.error(
                    "%d messages of subject %s, deleted meanwhile, went to %s",
                    len(batch.picks),
                    target.subject,
                    target.log,
                )


class _Routing:
    """Chooses the targets of the messages of one step. The messages of a row have one target, unless their own key or
    queue decides."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._log = dispatcher.bucket.log
        self._resolved: dict[tuple[str, int, str | None], tuple[Subject | None, Target | None]] = {}
        self._rows: dict[int, tuple[Target, str]] = {}

    def of(self, row_no: int, due_times: DueTimes, message: Message | None) -> tuple[Target, str]:
        """Returns the target, and a text by which equal targets are known."""
        if message is None:
            return _keyed(Target(DAMAGED, ""), due_times)
        if message.key is not None or message.queue is not None:
            return self._choose(row_no, due_times, message)
        chosen = self._rows.get(row_no)
        if chosen is None:
            chosen = self._rows[row_no] = self._choose(row_no, due_times, message)
        return chosen

    def _choose(self, row_no: int, due_times: DueTimes, message: Message) -> tuple[Target, str]:
        address = (due_times.subject, due_times.generation, due_times.member)
        if address not in self._resolved:
            self._resolved[address] = self._dispatcher._resolve(due_times)
        subject, fixed = self._resolved[address]
        if fixed is not None:
            return _keyed(fixed, due_times)
        assert subject is not None
        return _keyed(_queue(subject, message, delayed_batch(self._log, row_no)), due_times)


def _keyed(target: Target, due_times: DueTimes) -> tuple[Target, str]:
    return target, f"{target.kind} {target.log} {due_times.subject}"


def _message(page: DecodedRow, index: int) -> Message | None:
    """Returns the message as it is sent, with its times; None when it cannot be read."""
    if not page.raw:
        return None
    try:
        message = decode_one(page.raw[index])
    except Corrupt:
        return None
    if page.due_times.member is None:
        message.due_at = rfc3339(page.due_times.due_ms(index))
        if message.produced_at is None:
            message.produced_at = page.sent_at
    return message


def _queue(subject: Subject, message: Message, batch: str) -> Target:
    named = message.queue if message.queue is not None and message.queue < subject.queues else None
    log = subject.log(queue_of(message.key, batch, subject.queues) if named is None else named)
    return Target(DUE, log, subject.retention_ms, subject.name)
