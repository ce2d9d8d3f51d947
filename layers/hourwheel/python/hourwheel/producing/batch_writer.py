"""Writes the rows of a batch: at once, or under an idempotency key, so that a repetition puts the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from hourwheel.buckets.buckets import reserve_in
from hourwheel.context import Context
from hourwheel.errors import Conflict, Filled, Sealed, Unavailable
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.large_batches import large_batch_folder
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.logs.tags import with_tags
from hourwheel.model.fields import IDEMPOTENCY_MS
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.producing.batch_rows import row_of
from hourwheel.producing.idempotency import IdempotencyKey, Remembered, remember, remember_reservations
from hourwheel.producing.later_routes import LaterRoute, later_routes
from hourwheel.producing.part_rows import PartRow, reserve
from hourwheel.producing.routing import Batch, BatchPart, RoutingInputs
from hourwheel.producing.stored_batches import (
    StoredBatch,
    check_current,
    check_subjects,
    partly_stored,
    within_reserves,
)
from hourwheel.reach.outages import unless_given_up
from hourwheel.reach.storages import was_removed

_Stored: TypeAlias = tuple[list[BatchPart], list[Reservation]]
"""The parts of a batch, and where each was stored."""

# A bucket is kept for a day once it is closed: its rows are certainly there for half of that.
_BUCKET_KEPT_MS = 12 * 3_600_000


@dataclass(frozen=True)
class BatchWriter:
    """Stores the rows of a batch."""

    context: Context
    batch: Batch

    @cached_property
    def unnamed(self) -> Sequence[int]:
        """The indexes of the messages to which the sender gave no id."""
        return [index for index, message in enumerate(self.batch.messages) if message.id is None]

    def forget_ids(self) -> None:
        """Takes back the ids that this try gave to messages."""
        for index in self.unnamed:
            self.batch.messages[index].id = None

    def store(self) -> StoredBatch:
        """Stores the batch and tells where its parts are. Raises ``Sealed``, with nothing stored, for a sealed log."""
        inputs = self._inputs()
        if self.batch.whole(inputs):
            return self._store_whole(inputs)
        parts = self._split(inputs)
        rows = self._rows(parts, inputs.at_ms, inputs.batch)

        def append(context: Context) -> list[Reservation]:
            # Every part is reserved before any part is stored: a sealed log shows while nothing is stored yet.
            reservations = reserve(context, parts, rows)
            appended: list[Reservation] = []
            try:
                with partly_stored(lambda: bool(appended) and context.later is None):
                    for part, row, reservation in zip(parts, rows, reservations, strict=True):
                        appended.append(self._append(context, part, row, reservation))
                _announce_early(context, parts)
                return appended
            except Sealed:
                if len(parts) == 1:
                    raise
                # Other parts may be stored already: another try would store them twice.
                raise Unavailable(
                    "a queue was moved or deleted while the batch was stored: send the batch again"
                ) from None

        reservations = self.context.atomically(append, [part.log for part in parts])
        self.context.meter.record("Accepted", len(self.batch.messages))
        return self._stored(inputs.batch, parts, reservations)

    def _store_whole(self, inputs: RoutingInputs) -> StoredBatch:
        """Stores a batch that is one row, as ``store`` does, in fewer steps: nearly every batch is one."""
        (part,) = within_reserves(self.context, self.batch.split(inputs, self.context.settings.batch_buckets))
        log, at_ms = part.log, inputs.at_ms
        expires_ms = at_ms + part.subject.retention_ms
        (row,) = self.context.build_rows(
            log,
            large_batch_folder(log, expires_ms),
            [part.messages],
            at_ms=at_ms,
            expires_ms=expires_ms,
            prefix=inputs.batch if any(message.id is None for message in part.messages) else "",
        )
        row = with_tags(row, log, part.messages, self.context.settings.summary_bytes)

        def append(context: Context) -> Reservation:
            check_current(context, [part])
            appended = context.log(log).append(row)
            _announce_early(context, [part])
            return appended

        reservation = self.context.atomically(append, (log,))
        self.context.meter.record("Accepted", row.count)
        return self._stored(inputs.batch, [part], [reservation])

    def _stored(self, prefix: str, parts: list[BatchPart], reservations: list[Reservation]) -> StoredBatch:
        return StoredBatch(prefix, parts, reservations, len(self.batch.messages))

    def _append(self, context: Context, part: BatchPart, row: Row, reservation: Reservation) -> Reservation:
        """Stores a part at its reservation, or at a new one if a reader filled the reserved row. Returns the
        reservation that was used."""
        token = context.ids.token()
        while True:
            try:
                self._put(context, part, row, reservation, token)
                return reservation
            except Filled:
                reservation = reserve_in(context, reservation.log, row.count)

    def _put(self, context: Context, part: BatchPart, row: Row, reservation: Reservation, token: bytes) -> None:
        if row.large_batch is not None and reservation.log != part.log:
            # The object must be in the cell of the row, and in the folder of its bucket. The bucket is over, and
            # the row goes to a later one; or the queue has moved since the row was reserved.
            (row,) = self._rows([part.in_log(reservation.log)], row.at_ms, row.prefix)
        context.log(reservation.log).put(reservation, row, token)

    def store_once(self, idempotency: IdempotencyKey, keyspace: str) -> StoredBatch:
        """Stores the batch under its idempotency key, or repeats what the first request with the key has begun. Returns
        where the parts are. Raises what ``store`` raises, and ``Conflict`` if the key came with another batch."""
        inputs = self._inputs()
        parts = self._split(inputs)
        rows = self._rows(parts, inputs.at_ms, inputs.batch)
        looks = idempotency.is_looked_up(self.context, keyspace)

        def first(context: Context) -> Versioned[Remembered] | _Stored:
            record = idempotency.record(context, keyspace)
            earlier = record.load() if looks else None
            if earlier is not None and earlier.value.answers(idempotency.sequence, inputs.at_ms):
                # No sealed log refuses a reservation here if a subject was deleted meanwhile.
                check_subjects(context, self.batch.subjects.values())
                return earlier
            # Reserved before the key is written: the key names the rows, so that every repetition puts the same ones.
            reserved = reserve(context, parts, rows)
            offer = self._offer(idempotency, inputs, context.ids.token(), reserved)
            remembered = remember(record, offer, earlier)
            if remembered.value.token != offer.token:
                # Another request with this key was faster. Its reservations count; these would be holes.
                for row, reservation in zip(rows, reserved, strict=True):
                    context.log(reservation.log).abandon(reservation, row)
                return remembered
            stored = self._put_parts(context, record, remembered, parts, rows)
            _announce_early(context, parts)
            return stored

        outcome = self.context.atomically(first, [HOME, *(part.log for part in parts)])
        if isinstance(outcome, tuple):
            self.context.meter.record("Accepted", len(self.batch.messages))
            return self._stored(inputs.batch, *outcome)
        return self._repeat(outcome, idempotency, keyspace)

    def _offer(
        self, idempotency: IdempotencyKey, inputs: RoutingInputs, token: bytes, reserved: Sequence[Reservation]
    ) -> Remembered:
        return Remembered(
            digest=idempotency.digest,
            prefix=inputs.batch,
            queues=dict(inputs.queues),
            at_ms=inputs.at_ms,
            token=token,
            reservations=tuple(reserved),
            generations=self._generations,
            cut=inputs.cut,
            sequence=idempotency.sequence,
        )

    def _repeat(self, remembered: Versioned[Remembered], idempotency: IdempotencyKey, keyspace: str) -> StoredBatch:
        """Divides the batch as the first request with the key did, and puts each part that is not stored yet at its
        remembered reservation. Raises ``Conflict`` for another batch, and for one that came too late to be decided."""
        first = remembered.value
        idempotency.check_repeat(first, self._generations)
        self.forget_ids()
        parts = self._split(RoutingInputs(batch=first.prefix, queues=first.queues, at_ms=first.at_ms, cut=first.cut))
        for route in first.rerouted:
            self._name(first.prefix)
            parts = route.replaced(parts, route.divided(self.batch, parts, first.prefix))
        logs = [HOME, *(reservation.log for reservation in first.reservations)]
        if first.at_ms + IDEMPOTENCY_MS <= self.context.clock.now_ms():
            if self.context.is_atomic(logs):  # the record was stored together with the rows
                return self._stored(first.prefix, parts, list(first.reservations))
            self._refuse_undecided(parts, first)
        # A part that the first request did not store is accepted now: its retention begins now.
        rows = self._rows(parts, self.context.clock.now_ms(), first.prefix)

        def repeat(context: Context) -> _Stored:
            record = idempotency.record(context, keyspace)
            return self._put_parts(context, record, remembered, parts, rows, repeated=True)

        return self._stored(first.prefix, *self.context.atomically(repeat, logs))

    def _refuse_undecided(self, parts: Sequence[BatchPart], first: Remembered) -> None:
        """Raises ``Conflict`` if a row of the batch may have been stored and removed, or filled and removed. Its sender
        repeats it so late that fillers are removed too (see ``FILLER_MS``), or that its cell was removed."""
        for part, reservation in zip(parts, first.reservations, strict=True):
            removed = was_removed(self.context, reservation.log, first.at_ms)
            if removed or self._may_have_gone(part, reservation):
                detail = (
                    "the batch was sent too long ago to know whether it was stored: look for its messages, and send"
                    " the missing ones with a higher sequence"
                )
                raise Conflict("sequence-undecided", detail, field="sequence")

    def _may_have_gone(self, part: BatchPart, reservation: Reservation) -> bool:
        """Returns whether the reserved row may have been stored, or filled, and removed."""
        log, now_ms = self.context.log(reservation.log), self.context.clock.now_ms()
        bucket_over = part.bucket is not None and part.bucket.end_ms + _BUCKET_KEPT_MS <= now_ms
        return log.get(reservation.row_no) is None and (bucket_over or reservation.row_no < log.trimmed())

    @property
    def _generations(self) -> dict[str, int]:
        return {name: subject.generation for name, subject in self.batch.subjects.items()}

    def _inputs(self) -> RoutingInputs:
        at_ms = self.context.clock.now_ms()
        settings = self.context.settings
        return RoutingInputs(
            batch=self.context.ids.unique(at_ms),
            queues={name: subject.queues for name, subject in self.batch.subjects.items()},
            at_ms=at_ms,
            cut=(settings.bucket_minutes, settings.shards),
        )

    def _split(self, inputs: RoutingInputs) -> list[BatchPart]:
        """Divides the batch into parts. Gives an id to each message that has none, unless the row implies the id."""
        if not self.batch.whole(inputs):
            self._name(inputs.batch)
        return within_reserves(self.context, self.batch.split(inputs, self.context.settings.batch_buckets))

    def _name(self, prefix: str) -> None:
        """Gives an id to each message that has none."""
        for index in self.unnamed:
            self.batch.messages[index].id = f"{prefix}-{index}"

    def _rows(self, parts: Sequence[BatchPart], at_ms: int, prefix: str) -> list[Row]:
        """Returns a row for each part. The index of a message in the row of a whole batch is its index in the batch, so
        that the row's ``prefix`` implies the ids of messages without one."""
        longest_ms = at_ms + max((part.subject.retention_ms for part in parts if part.bucket is None), default=0)
        # One object for all messages that are sent at once, one for each bucket: an object is removed as a whole.
        # An object is in the cell of the rows that name it.
        by_folder: dict[tuple[str, str], list[int]] = {}
        for i, part in enumerate(parts):
            by_folder.setdefault((cell_of(part.log), large_batch_folder(part.log, longest_ms)), []).append(i)
        rows: dict[int, Row] = {}
        for (_, folder), numbers in by_folder.items():
            batches = [parts[i].messages for i in numbers]
            log = parts[numbers[0]].log
            built = self.context.build_rows(log, folder, batches, at_ms=at_ms, expires_ms=longest_ms)
            rows.update(zip(numbers, built, strict=True))
        implied = prefix if any(message.id is None for message in self.batch.messages) else ""
        spare_bytes = self.context.settings.summary_bytes
        return [row_of(part, rows[i], at_ms, implied, spare_bytes) for i, part in enumerate(parts)]

    def _put_parts(
        self,
        context: Context,
        record: CasRecord[Remembered],
        remembered: Versioned[Remembered],
        parts: Sequence[BatchPart],
        rows: Sequence[Row],
        *,
        repeated: bool = False,
    ) -> _Stored:
        """Puts each part at its remembered reservation, and returns the parts with their reservations. Where a reader
        filled a reserved row, a new one is reserved and remembered before the part is put there. ``repeated``: an
        earlier request may have put parts."""
        while True:
            reservations = remembered.value.reservations
            planned = map(PartRow, parts, rows, reservations)
            entries = [self._put_once(context, entry, remembered.value.token, repeated=repeated) for entry in planned]
            left = [number for number, entry in enumerate(entries) if entry.reservation is None]
            if not left:
                return list(parts), list(reservations)
            routes = later_routes(parts, left)
            entries = self._reserved_again(context, entries, routes, remembered.value.prefix)
            parts, rows = [entry.part for entry in entries], [entry.row for entry in entries]
            taken = [entry.reservation for entry in entries if entry.reservation is not None]
            remembered = remember_reservations(record, remembered, taken, routes)

    def _put_once(self, context: Context, entry: PartRow, token: bytes, *, repeated: bool) -> PartRow:
        """Puts the part at its reservation. Returns it without the reservation if a reader has filled the row, or its
        cell was given up."""
        part, row, reservation = entry
        assert reservation is not None

        def put() -> PartRow:
            log = context.log(reservation.log)
            # A part that was stored and has expired is not put again: a filler would still be there (``FILLER_MS``).
            if not repeated or reservation.row_no >= log.trimmed() or log.get(reservation.row_no) is not None:
                self._put(context, part, row, reservation, token)
            return entry

        unreserved = PartRow(part, row)
        try:
            return unless_given_up(context, reservation.log, put, otherwise=unreserved)
        except Filled:
            return unreserved

    def _reserved_again(
        self, context: Context, entries: Sequence[PartRow], routes: Sequence[LaterRoute], batch: str
    ) -> list[PartRow]:
        """Divides parts again by the routes, and reserves a row for each part that has none."""
        at_ms = entries[0].row.at_ms
        for route in routes:
            self._name(batch)
            divided = route.divided(self.batch, [entry.part for entry in entries], batch)
            entries = route.replaced(entries, list(map(PartRow, divided, self._rows(divided, at_ms, batch))))
        waiting = [entry for entry in entries if entry.reservation is None]
        reserved = iter(reserve(context, [entry.part for entry in waiting], [entry.row for entry in waiting]))
        return [entry if entry.reservation else entry._replace(reservation=next(reserved)) for entry in entries]


def _announce_early(context: Context, parts: Sequence[BatchPart]) -> None:
    """Wakes pulls whose claims may join the transaction that runs, if one does."""
    if context.later is not None:
        for part in parts:
            if part.bucket is None:
                context.early_wakeups.announce_early(part.subject.name)
