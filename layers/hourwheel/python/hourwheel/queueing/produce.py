"""Produce: a batch becomes one row in each queue it touches, and one in each bucket in which messages of it fall due
later; success means that the rows are stored.

With an idempotency key the batch is handed over: reserve, write the reservations under the key, put (see
``idempotency.py``). ``routing.py`` decides which message goes where.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from hourwheel.buckets.buckets import Bucket, reserve_in
from hourwheel.buckets.lease import ensure_wheel_by
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.due import Due, check_limit, dues_of
from hourwheel.errors import Filled, NotFound, Sealed, Unavailable
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.codec import encode
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import rows_of, segment_folder
from hourwheel.model import MAX_DELAY_MS, AddressedMessage, NewMessage, Placed, Subject
from hourwheel.queueing.idempotency import IdempotencyKey, Remembered, Spot, remember, remember_spots
from hourwheel.queueing.routing import Batch, Part, RoutingInputs
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

_TRIES = 5


def produce(
    context: Context,
    registry: Registry,
    subject: str,
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None = None,
    *,
    scheduled_id: Callable[[SchedulePosition], str],
) -> list[Placed]:
    """Stores a batch of one subject; where each message is, in order. ``handle`` makes the ids of delayed ones."""
    by_subject = {subject: range(len(messages))}
    return _produce(context, registry, by_subject, messages, idempotency, keyspace=subject, scheduled_id=scheduled_id)


def produce_many(
    context: Context,
    registry: Registry,
    messages: Sequence[AddressedMessage],
    idempotency: IdempotencyKey | None = None,
    *,
    scheduled_id: Callable[[SchedulePosition], str],
) -> list[Placed]:
    """Stores a batch that spans subjects; where each message is, in order. Without a key, a failure half-way leaves
    the parts that were stored."""
    by_subject: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_subject.setdefault(message.subject, []).append(index)
    return _produce(context, registry, by_subject, messages, idempotency, keyspace="*", scheduled_id=scheduled_id)


def _produce(
    context: Context,
    registry: Registry,
    indexes: Mapping[str, Sequence[int]],
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None,
    *,
    keyspace: str,
    scheduled_id: Callable[[SchedulePosition], str],
) -> list[Placed]:
    unnamed = [index for index, message in enumerate(messages) if message.id is None]
    waits = dues_of(messages)
    _check_limits(context, registry, indexes, waits)
    for _ in range(_TRIES):
        subjects = _subjects(context, registry, list(indexes), idempotency, keyspace)
        batch = _Batch(context, Batch(subjects, indexes, messages, waits), unnamed)
        try:
            if idempotency is None:
                parts, spots = batch.store()
            else:
                parts, spots = batch.store_once(idempotency, keyspace)
        except Sealed:
            # The subject was deleted since it was looked up: look again.
            for name in subjects:
                registry.forget(name)
            continue
        _announce(context, parts, spots)
        return _results(parts, spots, len(messages), scheduled_id)
    raise Unavailable("the subject keeps being deleted: send the batch again")


def _subjects(
    context: Context, registry: Registry, names: Sequence[str], idempotency: IdempotencyKey | None, keyspace: str
) -> dict[str, Subject]:
    """The subjects; those that do not exist are made. Raises ``Conflict``, and makes none, for a repeated batch of
    which one was deleted."""
    try:
        return {name: registry.subject(name) for name in names}
    except NotFound:
        if idempotency is not None:
            idempotency.refuse_if_used(context, keyspace)
        return {name: registry.subject(name, create=True) for name in names}


def _check_limits(
    context: Context, registry: Registry, indexes: Mapping[str, Sequence[int]], waits: Mapping[int, Due]
) -> None:
    """Refuses delays that are too long, but of subjects that take the longest one instead; makes no subject."""
    now_ms = context.clock.now_ms()
    for index, wait in waits.items():
        due_ms = wait.due_ms(now_ms)
        if due_ms > now_ms + MAX_DELAY_MS:
            name = next(name for name, inside in indexes.items() if index in inside)
            try:
                clamps = registry.subject(name).clamp_delays
            except NotFound:
                clamps = False
            if not clamps:
                check_limit(due_ms, now_ms, wait.field)


def _announce(context: Context, parts: Sequence[Part], spots: Sequence[Spot]) -> None:
    """Wakes the pulls that wait for the subjects, and the wheels of the buckets."""
    for name in {part.subject.name for part in parts if part.bucket is None}:
        context.wakeups.announce(name)
    for part, spot in zip(parts, spots, strict=True):
        if part.bucket is not None:
            ensure_wheel_by(context, Bucket.of_log(spot.log), min(part.dues))


@dataclass(frozen=True)
class _Batch:
    """A batch that is being stored. ``unnamed`` are the indexes of messages to which the sender gave no id."""

    context: Context
    batch: Batch
    unnamed: Sequence[int]

    def store(self) -> tuple[list[Part], list[Spot]]:
        inputs = self._inputs()
        parts = self._split(inputs)
        rows = self._rows(parts, inputs.at_ms)

        def append(context: Context) -> list[Spot]:
            # All are reserved before one is stored: a deleted subject is found out while nothing is.
            spots = [_reserve(context, part.log, row.count) for part, row in zip(parts, rows, strict=True)]
            try:
                return [
                    self._append(context, part, row, spot) for part, row, spot in zip(parts, rows, spots, strict=True)
                ]
            except Sealed:
                if len(parts) == 1:
                    raise
                # Other parts may be stored: stored again they would stand twice.
                raise Unavailable("a subject was deleted while the batch was stored: send the batch again") from None

        spots = self.context.atomically(append)
        self.context.meter.record("Accepted", len(self.batch.messages))
        return parts, spots

    def _append(self, context: Context, part: Part, row: Row, spot: Spot) -> Spot:
        """Stores a part at its spot, or where there is room when that was filled; there."""
        token = context.ids.token()
        while True:
            try:
                self._put(context, part, row, spot, token)
            except Filled:
                spot = _reserve(context, spot.log, row.count)
                continue
            return spot

    def _put(self, context: Context, part: Part, row: Row, spot: Spot, token: bytes) -> None:
        if row.segment is not None and spot.log != part.log:
            # Its bucket is over: the segment belongs with that of the row.
            (row,) = self._rows([replace(part, bucket=Bucket.of_log(spot.log))], row.at_ms)
        context.log(spot.log).put(Reservation(spot.row, spot.number), row, token)

    def store_once(self, idempotency: IdempotencyKey, keyspace: str) -> tuple[list[Part], list[Spot]]:
        inputs = self._inputs()
        parts = self._split(inputs)
        rows = self._rows(parts, inputs.at_ms)

        def first(context: Context) -> Versioned[Remembered] | list[Spot]:
            record = idempotency.record(context, keyspace)
            reserved = [_reserve(context, part.log, row.count) for part, row in zip(parts, rows, strict=True)]
            offer = self._offer(idempotency, inputs, context.ids.token(), reserved)
            held = remember(record, offer)
            if held.value.token != offer.token:
                for row, spot in zip(rows, reserved, strict=True):
                    context.log(spot.log).abandon(Reservation(spot.row, spot.number), row)
                return held
            return self._place(context, record, held, parts, rows)

        outcome = self.context.atomically(first)
        if isinstance(outcome, list):
            self.context.meter.record("Accepted", len(self.batch.messages))
            return parts, outcome
        return self._repeat(outcome, idempotency, keyspace)

    def _offer(
        self, idempotency: IdempotencyKey, inputs: RoutingInputs, token: bytes, reserved: Sequence[Spot]
    ) -> Remembered:
        return Remembered(
            digest=idempotency.digest,
            prefix=inputs.batch,
            queues=dict(inputs.queues),
            at_ms=inputs.at_ms,
            token=token,
            places=tuple(reserved),
            generations=self._generations,
            cut=inputs.cut,
        )

    def _repeat(
        self, held: Versioned[Remembered], idempotency: IdempotencyKey, keyspace: str
    ) -> tuple[list[Part], list[Spot]]:
        first = held.value
        idempotency.check_repeat(first, self._generations)
        parts = self._split(RoutingInputs(batch=first.prefix, queues=first.queues, at_ms=first.at_ms, cut=first.cut))
        # What was not stored then is accepted now, and retained from now on.
        rows = self._rows(parts, self.context.clock.now_ms())

        def again(context: Context) -> list[Spot]:
            return self._place(context, idempotency.record(context, keyspace), held, parts, rows, again=True)

        return parts, self.context.atomically(again)

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

    def _split(self, inputs: RoutingInputs) -> list[Part]:
        """The parts of the batch; names the messages that have no id."""
        for index in self.unnamed:
            self.batch.messages[index].id = f"{inputs.batch}-{index}"
        return self.batch.split(inputs, self.context.settings.batch_buckets)

    def _rows(self, parts: Sequence[Part], at_ms: int) -> list[Row]:
        longest_ms = at_ms + max((part.subject.retention_ms for part in parts if part.bucket is None), default=0)
        name = self.context.ids.unique(at_ms)
        # One segment for all that is sent at once, one for each bucket: they are removed together.
        by_folder: dict[str, list[int]] = {}
        for at, part in enumerate(parts):
            by_folder.setdefault(segment_folder(part.log, longest_ms), []).append(at)
        rows: dict[int, Row] = {}
        for folder, inside in by_folder.items():
            made = rows_of(
                [encode(parts[at].messages, self.context.settings.compression_level) for at in inside],
                blobs=self.context.blobs,
                segment=f"{folder}/{name}",
                at_ms=at_ms,
                expires_ms=longest_ms,
                inline_bytes=self.context.settings.inline_bytes,
            )
            rows.update(zip(inside, made, strict=True))
        return [_row_of(part, rows[at], at_ms) for at, part in enumerate(parts)]

    def _place(
        self,
        context: Context,
        record: CasRecord[Remembered],
        held: Versioned[Remembered],
        parts: Sequence[Part],
        rows: Sequence[Row],
        *,
        again: bool = False,
    ) -> list[Spot]:
        """Puts each part at its remembered spot; where that was filled a new one is taken and remembered first."""
        while True:
            current = held.value
            spots = list(current.places)
            for index, (part, row) in enumerate(zip(parts, rows, strict=True)):
                spot = spots[index]
                log = context.log(spot.log)
                if again and spot.row < log.trimmed() and log.get(spot.row) is None:
                    # It was stored and its time is over: a filler would still stand there (see ``FILLER_MS``).
                    continue
                try:
                    self._put(context, part, row, spot, current.token)
                except Filled:
                    spots[index] = _reserve(context, spot.log, row.count)
            moved = tuple(spots)
            if moved == current.places:
                return spots
            held = remember_spots(record, held, moved)


def _row_of(part: Part, row: Row, at_ms: int) -> Row:
    """The row as it stands in the part's log."""
    if part.bucket is not None:
        return msgspec.structs.replace(row, expires_ms=0, meta=part.meta)
    expires_ms = at_ms + part.subject.retention_ms
    return row if row.expires_ms == expires_ms else msgspec.structs.replace(row, expires_ms=expires_ms)


def _reserve(context: Context, log: str, count: int) -> Spot:
    taken, place = reserve_in(context, log, count)
    return Spot(taken, place.row, place.number)


def _results(
    parts: Sequence[Part], spots: Sequence[Spot], count: int, handle: Callable[[SchedulePosition], str]
) -> list[Placed]:
    found: list[Placed | None] = [None] * count
    for part, spot in zip(parts, spots, strict=True):
        if part.bucket is None:
            for step, (index, message) in enumerate(zip(part.indexes, part.messages, strict=True)):
                found[index] = Placed(message.id or "", part.queue, spot.number + step)
            continue
        bucket = Bucket.of_log(spot.log)
        for step, (index, message, due_ms) in enumerate(zip(part.indexes, part.messages, part.dues, strict=True)):
            scheduled_id = handle(SchedulePosition(bucket, spot.row, step))
            found[index] = Placed(message.id or "", scheduled=rfc3339(due_ms), scheduled_id=scheduled_id)
    return [placed for placed in found if placed is not None]
