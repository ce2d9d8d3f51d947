"""Produce: a batch becomes one row in each queue it touches, and one in each bucket in which messages of it fall due
later; success means that the rows are stored.

With an idempotency key the batch is handed over: reserve, write the reservations under the key, put.
Whoever comes with the same key finds the reservations, repeats the puts, and gives the same answer.

    table      keys
    partition  {subject}, or * for batches that span subjects
    sort       the idempotency key
    value      Remembered, msgpack array
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple
from zlib import crc32

import msgspec

from hourwheel.context import Context
from hourwheel.delay.buckets import Bucket, reserve_in
from hourwheel.delay.handles import Waiting
from hourwheel.delay.lease import expect
from hourwheel.delay.waits import Wait, check_limit, waits_of
from hourwheel.errors import Conflict, Filled, NotFound, Sealed, TooLarge, Unavailable
from hourwheel.logs.codec import encode
from hourwheel.logs.item import Held, Slot
from hourwheel.logs.log import Reservation
from hourwheel.logs.notes import Plan, encode_note
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import rows_of, segment_folder
from hourwheel.meta.directory import Directory
from hourwheel.model import IDEMPOTENCY_MS, MAX_DELAY_MS, AddressedMessage, NewMessage, Placed, Subject
from hourwheel.ports import Key, Table
from hourwheel.times import rfc3339

_TRIES = 5


class Spot(NamedTuple):
    """A reserved row of a log, and the sequence of its first message."""

    log: str
    row: int
    number: int


class Remembered(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What an idempotency key stands for. ``places`` are [log, row, number] for each part in order; ``queues`` is each
    subject's number of queues then, and ``cut`` length and number of the buckets, so that the split can be made again;
    ``generations`` tells which subject of that name it was."""

    digest: bytes
    prefix: str
    queues: dict[str, int]
    at_ms: int
    token: bytes
    places: tuple[Spot, ...]
    generations: dict[str, int]
    cut: tuple[int, int]


@dataclass(frozen=True)
class Part:
    """The messages of a batch that share a queue, or a bucket in which they are due at ``dues``, and their indexes in
    the batch."""

    subject: Subject
    queue: int | None
    messages: Sequence[NewMessage]
    indexes: Sequence[int]
    bucket: Bucket | None = None
    dues: Sequence[int] = ()

    @property
    def log(self) -> str:
        if self.bucket is not None:
            return self.bucket.log
        assert self.queue is not None
        return self.subject.log(self.queue)

    @property
    def note(self) -> bytes:
        if self.bucket is None:
            return b""
        return encode_note(Plan.of(self.subject.name, self.subject.generation, None, self.dues))


@dataclass(frozen=True)
class IdempotencyKey:
    """The sender's key, and a digest of the content it goes with."""

    key: str
    digest: bytes


def produce(
    context: Context,
    directory: Directory,
    subject: str,
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None = None,
    *,
    handle: Callable[[Waiting], str],
) -> list[Placed]:
    """Stores a batch of one subject; where each message is, in order. ``handle`` makes the ids of delayed ones."""
    by_subject = {subject: range(len(messages))}
    return _produce(context, directory, by_subject, messages, idempotency, keyspace=subject, handle=handle)


def produce_many(
    context: Context,
    directory: Directory,
    messages: Sequence[AddressedMessage],
    idempotency: IdempotencyKey | None = None,
    *,
    handle: Callable[[Waiting], str],
) -> list[Placed]:
    """Stores a batch that spans subjects; where each message is, in order. Without a key, a failure half-way leaves
    the parts that were stored."""
    by_subject: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_subject.setdefault(message.subject, []).append(index)
    return _produce(context, directory, by_subject, messages, idempotency, keyspace="*", handle=handle)


def _produce(
    context: Context,
    directory: Directory,
    indexes: dict[str, Sequence[int]] | dict[str, list[int]] | dict[str, range],
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None,
    *,
    keyspace: str,
    handle: Callable[[Waiting], str],
) -> list[Placed]:
    named = [index for index, message in enumerate(messages) if message.id is None]
    waits = waits_of(messages)
    _check_limits(context, directory, indexes, waits)
    for _ in range(_TRIES):
        subjects = _subjects(context, directory, list(indexes), idempotency, keyspace)
        batch = _Batch(context, subjects, indexes, messages, named, waits)
        try:
            if idempotency is None:
                parts, spots = batch.store()
            else:
                parts, spots = batch.store_once(idempotency, keyspace)
        except Sealed:
            # The subject was deleted since it was looked up: look again.
            for name in subjects:
                directory.forget(name)
            continue
        for name in {part.subject.name for part in parts if part.bucket is None}:
            context.arrivals.announce(name)
        for part, spot in zip(parts, spots, strict=True):
            if part.bucket is not None:
                expect(context, Bucket.of_log(spot.log), min(part.dues))
        return _results(parts, spots, len(messages), handle)
    raise Unavailable("the subject keeps being deleted: send the batch again")


def _subjects(
    context: Context, directory: Directory, names: Sequence[str], idempotency: IdempotencyKey | None, keyspace: str
) -> dict[str, Subject]:
    """The subjects; those that do not exist are made. Raises ``Conflict``, and makes none, for a repeated batch of
    which one was deleted."""
    try:
        return {name: directory.subject(name) for name in names}
    except NotFound:
        if idempotency is not None:
            first = _remembered(context, keyspace, idempotency).load()
            if first is not None and first.value.at_ms + IDEMPOTENCY_MS > context.clock.now_ms():
                raise _conflict(first.value, idempotency) from None
        return {name: directory.subject(name, create=True) for name in names}


def _remembered(context: Context, keyspace: str, idempotency: IdempotencyKey) -> Slot[Remembered]:
    return Slot(context.store, context.ids, Key(Table.KEYS, keyspace, idempotency.key), Remembered)


def _conflict(first: Remembered, idempotency: IdempotencyKey) -> Conflict:
    """Why a batch is not the one that came with its key before: it has other content, or else a subject is not there
    any more."""
    if first.digest != idempotency.digest:
        slug = "idempotency-key-reused"
        detail = "this idempotency key came with other content before: use a new key for a new batch"
    else:
        slug = "subject-deleted"
        detail = "a subject of this batch was deleted since it was first sent: send what is still wanted with a new key"
    return Conflict(slug, detail, field="idempotency_key")


def _check_limits(
    context: Context,
    directory: Directory,
    indexes: dict[str, Sequence[int]] | dict[str, list[int]] | dict[str, range],
    waits: dict[int, Wait],
) -> None:
    """Refuses delays that are too long, but of subjects that take the longest one instead; makes no subject."""
    now_ms = context.clock.now_ms()
    for index, wait in waits.items():
        due_ms = wait.due_ms(now_ms)
        if due_ms > now_ms + MAX_DELAY_MS:
            name = next(name for name, inside in indexes.items() if index in inside)
            try:
                clamps = directory.subject(name).clamp_delays
            except NotFound:
                clamps = False
            if not clamps:
                check_limit(due_ms, now_ms, wait.field)


@dataclass(frozen=True)
class _Batch:
    context: Context
    subjects: dict[str, Subject]
    indexes: dict[str, Sequence[int]] | dict[str, list[int]] | dict[str, range]
    messages: Sequence[NewMessage]
    unnamed: Sequence[int]
    waits: dict[int, Wait]

    def store(self) -> tuple[list[Part], list[Spot]]:
        at_ms = self.context.clock.now_ms()
        queues = {name: subject.queues for name, subject in self.subjects.items()}
        parts = self._split(self.context.ids.unique(at_ms), queues, at_ms, self._cut)
        rows = self._rows(parts, at_ms)

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
        self.context.meter.record("Accepted", len(self.messages))
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
        at_ms = self.context.clock.now_ms()
        queues = {name: subject.queues for name, subject in self.subjects.items()}
        prefix = self.context.ids.unique(at_ms)
        parts = self._split(prefix, queues, at_ms, self._cut)
        rows = self._rows(parts, at_ms)

        def first(context: Context) -> Held[Remembered] | list[Spot]:
            slot = _remembered(context, keyspace, idempotency)
            reserved = [_reserve(context, part.log, row.count) for part, row in zip(parts, rows, strict=True)]
            offer = Remembered(
                digest=idempotency.digest,
                prefix=prefix,
                queues=queues,
                at_ms=at_ms,
                token=context.ids.token(),
                places=tuple(reserved),
                generations=self._generations,
                cut=self._cut,
            )
            held = self._remember(slot, offer)
            if held.value.token != offer.token:
                for row, spot in zip(rows, reserved, strict=True):
                    context.log(spot.log).abandon(Reservation(spot.row, spot.number), row)
                return held
            return self._place(context, slot, held, parts, rows)

        outcome = self.context.atomically(first)
        if isinstance(outcome, list):
            self.context.meter.record("Accepted", len(self.messages))
            return parts, outcome
        return self._repeat(outcome, idempotency, keyspace)

    def _remember(self, slot: Slot[Remembered], offer: Remembered) -> Held[Remembered]:
        """The record under the key: the offer, or an earlier one that has not run out."""
        expect: bytes | None = None
        for _ in range(_TRIES):
            outcome = slot.swap(expect, offer, token=offer.token, expires_ms=offer.at_ms + IDEMPOTENCY_MS)
            held = outcome.held
            if outcome.stored and held is not None:
                return held
            if held is not None and held.value.at_ms + IDEMPOTENCY_MS > offer.at_ms:
                return held
            expect = None if held is None else held.token
        raise Unavailable("many requests with this idempotency key at once: send it again")

    def _repeat(
        self, held: Held[Remembered], idempotency: IdempotencyKey, keyspace: str
    ) -> tuple[list[Part], list[Spot]]:
        first = held.value
        if first.digest != idempotency.digest or first.generations != self._generations:
            raise _conflict(first, idempotency)
        parts = self._split(first.prefix, first.queues, first.at_ms, first.cut)
        # What was not stored then is accepted now, and retained from now on.
        rows = self._rows(parts, self.context.clock.now_ms())

        def again(context: Context) -> list[Spot]:
            slot = _remembered(context, keyspace, idempotency)
            return self._place(context, slot, held, parts, rows, again=True)

        return parts, self.context.atomically(again)

    @property
    def _generations(self) -> dict[str, int]:
        return {name: subject.generation for name, subject in self.subjects.items()}

    @property
    def _cut(self) -> tuple[int, int]:
        return self.context.settings.bucket_minutes, self.context.settings.shards

    def _split(self, prefix: str, queues: dict[str, int], at_ms: int, cut: tuple[int, int]) -> list[Part]:
        """The batch by queue and bucket, the same for the same arguments; names the unnamed messages."""
        for index in self.unnamed:
            self.messages[index].id = f"{prefix}-{index}"
        parts = []
        for name, subject in self.subjects.items():
            indexes: Sequence[int] = self.indexes[name]
            if self.waits:
                indexes, later = self._later(subject, indexes, prefix, at_ms, cut)
                parts += later
            if queues[name] == 1 and indexes:
                parts.append(Part(subject, 0, [self._stored(index) for index in indexes], indexes))
                continue
            by_queue: dict[int, list[int]] = {}
            for index in indexes:
                lane = self.messages[index].key or prefix
                by_queue.setdefault(crc32(lane.encode()) % queues[name], []).append(index)
            parts += [
                Part(subject, queue, [self._stored(index) for index in at], at)
                for queue, at in sorted(by_queue.items())
            ]
        return parts

    def _stored(self, index: int) -> NewMessage:
        """The message as it is stored: when it is due stands beside the batch."""
        message = self.messages[index]
        return msgspec.structs.replace(message, delay=None, deliver_at=None) if index in self.waits else message

    def _later(
        self, subject: Subject, indexes: Sequence[int], prefix: str, at_ms: int, cut: tuple[int, int]
    ) -> tuple[list[int], list[Part]]:
        """The indexes of what is sent at once, and a part for each bucket."""
        at_once: list[int] = []
        by_bucket: dict[Bucket, list[tuple[int, int]]] = {}
        minutes, shards = cut
        shard = crc32(prefix.encode()) % shards
        for index in indexes:
            wait = self.waits.get(index)
            due_ms = at_ms if wait is None else wait.due_ms(at_ms)
            if due_ms <= at_ms:
                at_once.append(index)
                continue
            due_ms = min(due_ms, at_ms + MAX_DELAY_MS)
            by_bucket.setdefault(Bucket.at(due_ms, minutes, shard), []).append((index, due_ms))
        most = self.context.settings.batch_buckets
        if len(by_bucket) > most:
            raise TooLarge(
                "batch-too-large",
                f"the messages of a batch may fall due in {most} times of {minutes} minutes at most, these do in"
                f" {len(by_bucket)}: split it",
                field="messages",
            )
        return at_once, [
            Part(
                subject,
                None,
                [self._stored(index) for index, _ in inside],
                [index for index, _ in inside],
                bucket,
                [due_ms for _, due_ms in inside],
            )
            for bucket, inside in sorted(by_bucket.items())
        ]

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
        slot: Slot[Remembered],
        held: Held[Remembered],
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
            value = msgspec.structs.replace(current, places=moved)
            outcome = slot.swap(held.token, value, expires_ms=current.at_ms + IDEMPOTENCY_MS)
            if outcome.held is None:
                raise Unavailable("the idempotency key ran out meanwhile: send the batch again with a new one")
            held = outcome.held


def _row_of(part: Part, row: Row, at_ms: int) -> Row:
    """The row as it stands in the part's log."""
    if part.bucket is not None:
        return msgspec.structs.replace(row, expires_ms=0, note=part.note)
    expires_ms = at_ms + part.subject.retention_ms
    return row if row.expires_ms == expires_ms else msgspec.structs.replace(row, expires_ms=expires_ms)


def _reserve(context: Context, log: str, count: int) -> Spot:
    taken, place = reserve_in(context, log, count)
    return Spot(taken, place.row, place.number)


def _results(
    parts: Sequence[Part], spots: Sequence[Spot], count: int, handle: Callable[[Waiting], str]
) -> list[Placed]:
    found: list[Placed | None] = [None] * count
    for part, spot in zip(parts, spots, strict=True):
        if part.bucket is None:
            for step, (index, message) in enumerate(zip(part.indexes, part.messages, strict=True)):
                found[index] = Placed(message.id or "", part.queue, spot.number + step)
            continue
        bucket = Bucket.of_log(spot.log)
        for step, (index, message, due_ms) in enumerate(zip(part.indexes, part.messages, part.dues, strict=True)):
            scheduled_id = handle(Waiting(bucket, spot.row, step))
            found[index] = Placed(message.id or "", scheduled=rfc3339(due_ms), scheduled_id=scheduled_id)
    return [placed for placed in found if placed is not None]
