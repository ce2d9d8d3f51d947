"""Handing over what is due: reserve rows in the targets, write one dispatch row that names them, put the rows.

Whoever takes the bucket over repeats the puts that the last dispatch row names.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.delay.orphans import register_orphan
from hourwheel.delay.ownership import Fenced, Ownership
from hourwheel.delay.timing import unpack
from hourwheel.errors import Corrupt, Filled, NotFound, Sealed
from hourwheel.faults import unreadable
from hourwheel.handover.handover import Transfer, release
from hourwheel.lognames import LogName, Member
from hourwheel.logs.codec import decode_one, encode
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import raw_messages_of, rows_of, segment_folder
from hourwheel.model import BATCH_BYTES, BATCH_MESSAGES, DEAD_RETENTION_MS, Message, Subject
from hourwheel.ports import GET_MANY
from hourwheel.queueing.routing import delayed_batch, queue_of
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

DUE, AGAIN, ORPHANED, DROPPED, DAMAGED = "due", "again", "orphaned", "dropped", "damaged"
"""What becomes of picks: to the subject's queue; to a group's retry log; to the log of a deleted subject; nothing, as
their group is deleted; nothing, as they cannot be read."""

_STEP_PICKS = 5_000
_STEP_BATCHES = 500
"""A dispatch row names so many messages and targets at most: with the longest names it stays below 350 KB."""

_logger = logging.getLogger("hourwheel")

_CACHE_BYTES = 48 << 20
_RAW_OVERHEAD = 120
_DENSE = 4
_STEP_BYTES = 16 << 20

Pick: TypeAlias = tuple[int, int]
"""A message's row and index in the schedule log."""


@dataclass(frozen=True)
class _DecodedRow:
    """A row of the schedule log with its messages still encoded; none when they cannot be read."""

    at_ms: int
    due_times: DueTimes
    raw: Sequence[msgspec.Raw]
    size: int


class ScheduleRowCache:
    """The rows of a schedule log that were used last. For one thread."""

    def __init__(self, context: Context, bucket: Bucket) -> None:
        self._context = context
        self._log = context.log(bucket.log)
        self._rows: OrderedDict[int, _DecodedRow] = OrderedDict()
        self._size = 0

    def each(self, numbers: Sequence[int]) -> Iterator[tuple[int, _DecodedRow]]:
        """These rows, which are in order, one by one: read in as few calls as it takes, held no longer than there is
        room."""
        for at in range(0, len(numbers), GET_MANY):
            some = numbers[at : at + GET_MANY]
            read = self._read([number for number in some if number not in self._rows])
            for number in some:
                page = self._rows.get(number)
                if page is None:
                    # A read that may be out of date may have missed it.
                    row = read.get(number) or self._log.get(number)
                    assert row is not None
                    page = self._keep(number, row)
                else:
                    self._rows.move_to_end(number)
                yield number, page

    def _read(self, numbers: Sequence[int]) -> dict[int, Row]:
        """These rows: neighbours by their range, what is scattered one by one in one call."""
        read: dict[int, Row] = {}
        scattered: list[int] = []
        for run in _runs(numbers):
            if len(run) > 1:
                read |= self._log.read(run[0], run[-1] - run[0] + 1)
            else:
                scattered += run
        return read | self._log.get_many(scattered) if scattered else read

    def _keep(self, number: int, row: Row) -> _DecodedRow:
        entry = decode_entry(row.meta)
        assert isinstance(entry, DueTimes)
        try:
            raw = raw_messages_of(row, self._context.blobs)
        except Corrupt as error:
            unreadable(self._context, self._log.name, number, row.count, error)
            raw = []
        page = _DecodedRow(row.at_ms, entry, raw, row.raw_bytes + _RAW_OVERHEAD * row.count)
        self._rows[number] = page
        self._size += page.size
        while self._size > _CACHE_BYTES and len(self._rows) > 1:
            self._size -= self._rows.popitem(last=False)[1].size
        return page


def _runs(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """The numbers, which are in order, in slices with little between one and the next."""
    at = 0
    for end in range(1, len(numbers) + 1):
        far = end == len(numbers) or numbers[end] - numbers[end - 1] > _DENSE
        if far:
            yield numbers[at:end]
            at = end


@dataclass(frozen=True)
class Target:
    """Where messages go, and for how long they are kept there. Without a log they go nowhere."""

    kind: str
    log: str
    keep_ms: int = 0
    subject: str = ""
    group: str | None = None


@dataclass(eq=False)
class OutgoingBatch:
    """Messages of one bucket for one target: a row there."""

    target: Target
    due_times: DueTimes
    picks: list[Pick] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    earliest_ms: int = 0
    """When the first of them was due."""

    def fits(self, size: int) -> bool:
        return len(self.picks) < BATCH_MESSAGES and (not self.picks or self.size + size <= BATCH_BYTES)

    def add(self, pick: Pick, message: Message | None, size: int, due_ms: int) -> None:
        self.picks.append(pick)
        self.size += size
        self.earliest_ms = min(self.earliest_ms or due_ms, due_ms)
        if message is not None:
            self.messages.append(message)


@dataclass
class Dispatcher:
    """Hands messages of one bucket over, under its owner's dispatch log. For one thread."""

    context: Context
    registry: Registry
    bucket: Bucket
    ownership: Ownership
    row_cache: ScheduleRowCache

    def dispatch(self, places: Sequence[int]) -> Iterator[None]:
        """Hands over the messages at these packed positions, which are due, step by step. Raises ``Fenced`` and the
        store's errors; what was written down by then is finished by the next owner."""
        for at in range(0, len(places), _STEP_PICKS):
            rest = [unpack(place) for place in places[at : at + _STEP_PICKS]]
            while rest:
                batches, rest = self._batches(rest)
                while batches:
                    batches = self._hand_over(batches)
                yield

    def finish(self, transfers: Iterable[Transfer]) -> None:
        """Repeats the puts that a row of the dispatch log names."""
        again = []
        for transfer in transfers:
            if not transfer.log or self._expired(transfer):
                continue
            batch = self._batch_of(transfer)
            if self._trimmed(transfer):
                # A filler stood there, and its time is over: below the trim mark nobody reads. Or the batch did, and
                # its own time came to an end while this was read.
                if transfer.expires_ms > self.context.clock.now_ms():
                    again.append(batch)
                continue
            row = self._row(batch, transfer.at_ms, transfer.expires_ms, transfer.log)
            try:
                if self._put(self.context, transfer, row):
                    self._announce([batch])
            except Filled:
                again.append(batch)
        while again:
            again = self._hand_over(again)

    def _expired(self, transfer: Transfer) -> bool:
        """Whether what was put has been trimmed since, its retention being over."""
        return transfer.expires_ms <= self.context.clock.now_ms() and self._trimmed(transfer)

    def _trimmed(self, transfer: Transfer) -> bool:
        log = self.context.log(transfer.log)
        return transfer.row < log.trimmed() and log.get(transfer.row) is None

    def _hand_over(self, batches: Sequence[OutgoingBatch]) -> list[OutgoingBatch]:
        """One step: the batches that found their row filled or their log sealed are to be sent anew."""
        at_ms = self.ownership.time()
        for log in {batch.target.log for batch in batches if batch.target.kind == ORPHANED}:
            register_orphan(self.context, log)
        rows = [
            self._row(batch, at_ms, at_ms + batch.target.keep_ms, batch.target.log) if batch.target.log else None
            for batch in batches
        ]

        def work(context: Context) -> tuple[list[OutgoingBatch], list[OutgoingBatch]]:
            transfers: list[Transfer] = []
            ready: list[tuple[OutgoingBatch, Transfer, Row | None]] = []
            closed = []
            for batch, row in zip(batches, rows, strict=True):
                transfer = self._reserved(context, batch, at_ms)
                if transfer is None:
                    closed.append(batch)
                else:
                    transfers.append(transfer)
                    ready.append((batch, transfer, row))
            if transfers:
                try:
                    self.ownership.append(context, tuple(transfers))
                except Fenced:
                    release(context, [transfer for transfer in transfers if transfer.log])
                    raise
            filled = []
            for batch, transfer, row in ready:
                if row is not None:
                    try:
                        self._put(context, transfer, row)
                    except Filled:
                        filled.append(batch)
            return filled, closed

        filled, closed = self.context.atomically(work)
        self._announce(batch for batch in batches if batch not in closed and batch not in filled)
        return filled + [self._redirected(batch) for batch in closed]

    def _reserved(self, context: Context, batch: OutgoingBatch, at_ms: int) -> Transfer | None:
        """A transfer for the batch; None when its log is sealed."""
        reservation = Reservation(0, 0)
        if batch.target.log:
            try:
                reservation = context.log(batch.target.log).reserve(len(batch.picks))
            except Sealed:
                return None
        return Transfer(
            kind=batch.target.kind,
            log=batch.target.log,
            row=reservation.row,
            number=reservation.number,
            token=context.ids.token(),
            at_ms=at_ms,
            expires_ms=at_ms + batch.target.keep_ms,
            picks=tuple(batch.picks),
        )

    def _put(self, context: Context, transfer: Transfer, row: Row) -> bool:
        return context.log(transfer.log).put(Reservation(transfer.row, transfer.number), row, transfer.token)

    def _row(self, batch: OutgoingBatch, at_ms: int, expires_ms: int, log: str) -> Row:
        """The row that stands for the batch: with the same messages whoever makes it."""
        messages = batch.messages
        if batch.target.kind == ORPHANED:
            died_at = rfc3339(at_ms)
            messages = [
                msgspec.structs.replace(message, died_at=died_at, reason="subject-deleted") for message in messages
            ]
        if not messages:
            return Row(number=-1, count=0, at_ms=at_ms, expires_ms=expires_ms)
        (row,) = rows_of(
            [encode(messages, self.context.settings.compression_level)],
            blobs=self.context.blobs,
            segment=f"{segment_folder(log, expires_ms)}/{self.context.ids.unique(at_ms)}",
            at_ms=at_ms,
            expires_ms=expires_ms,
            inline_bytes=self.context.settings.inline_bytes,
        )
        return row

    def _batches(self, picks: Sequence[Pick]) -> tuple[list[OutgoingBatch], list[Pick]]:
        """The messages of these positions by target, in their order; and what would be too much for one step."""
        read, rest = self._read(picks), []
        targets: dict[tuple[str, int, str | None], tuple[Subject | None, Target | None]] = {}
        open_batches: dict[str, OutgoingBatch] = {}
        batches: list[OutgoingBatch] = []
        for pick in picks:
            if pick not in read:
                rest.append(pick)
                continue
            due_times, message, size = read[pick]
            address = (due_times.subject, due_times.generation, due_times.member)
            if address not in targets:
                targets[address] = self._resolve(due_times)
            subject, fixed = targets[address]
            if message is None:
                target = Target(DAMAGED, "")
            elif fixed is not None:
                target = fixed
            else:
                assert subject is not None
                target = _queue(subject, message, delayed_batch(self.bucket.log, pick[0]))
            target_key = f"{target.kind} {target.log} {due_times.subject}"
            batch = open_batches.get(target_key)
            if batch is None or not batch.fits(size):
                if len(batches) == _STEP_BATCHES:
                    open_batches.pop(target_key, None)  # what follows for this target waits with it
                    rest.append(pick)
                    continue
                batch = open_batches[target_key] = OutgoingBatch(target, due_times)
                batches.append(batch)
            batch.add(pick, message, size, due_times.due_ms(pick[1]))
        return batches, rest

    def _read(self, picks: Iterable[Pick]) -> dict[Pick, tuple[DueTimes, Message | None, int]]:
        """Plan, message (None: it cannot be read) and size, until it would be too much for one step."""
        by_row: dict[int, list[int]] = {}
        for row, index in picks:
            by_row.setdefault(row, []).append(index)
        read: dict[Pick, tuple[DueTimes, Message | None, int]] = {}
        total = 0
        for row, page in self.row_cache.each(sorted(by_row)):
            for index in by_row[row]:
                size = len(page.raw[index]) if page.raw else 0
                read[row, index] = page.due_times, _message(page, index), size
                total += size
            if total > _STEP_BYTES:
                break
        return read

    def _batch_of(self, transfer: Transfer) -> OutgoingBatch:
        """What a transfer stands for, made again."""
        indexes: dict[int, list[int]] = {}
        for row, index in transfer.picks:
            indexes.setdefault(row, []).append(index)
        found: dict[Pick, Message | None] = {}
        for row, page in self.row_cache.each(sorted(indexes)):
            due_times = page.due_times
            found |= {(row, index): _message(page, index) for index in indexes[row]}
        member = LogName.parse(transfer.log).member if transfer.kind == AGAIN else None
        keep_ms = transfer.expires_ms - transfer.at_ms
        target = Target(transfer.kind, transfer.log, keep_ms, due_times.subject, member.group if member else None)
        batch = OutgoingBatch(target, due_times)
        for pick in transfer.picks:
            batch.add(pick, found[pick], 0, 0)
        return batch

    def _resolve(self, due_times: DueTimes) -> tuple[Subject | None, Target | None]:
        """The subject, whose queue depends on the message, or a target for all messages of the plan."""
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
        """For messages whose subject, or group, is there no more."""
        if due_times.member is not None:
            return Target(DROPPED, "")
        log = str(LogName.of_orphans(due_times.subject, due_times.generation))
        return Target(ORPHANED, log, DEAD_RETENTION_MS, due_times.subject)

    def _redirected(self, batch: OutgoingBatch) -> OutgoingBatch:
        """The log of a batch was sealed since it was looked up: subject or group were deleted."""
        self.registry.forget(batch.due_times.subject)
        return replace(batch, target=self._orphan_target(batch.due_times))

    def _announce(self, batches: Iterable[OutgoingBatch]) -> None:
        """Wakes those who wait for what was handed over, and tells those who operate."""
        for batch in batches:
            target = batch.target
            meter = self.context.meter
            if target.kind in (DUE, AGAIN):
                self.context.wakeups.announce(target.subject, target.group)
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


def _message(page: _DecodedRow, index: int) -> Message | None:
    """The message as it is sent; None when it cannot be read."""
    if not page.raw:
        return None
    try:
        message = decode_one(page.raw[index])
    except Corrupt:
        return None
    if page.due_times.member is None:
        message.due_at = rfc3339(page.due_times.due_ms(index))
        if message.produced_at is None:
            message.produced_at = rfc3339(page.at_ms)
    return message


def _queue(subject: Subject, message: Message, batch: str) -> Target:
    log = subject.log(queue_of(message.key, batch, subject.queues))
    return Target(DUE, log, subject.retention_ms, subject.name)
