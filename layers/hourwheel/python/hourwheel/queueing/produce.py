"""Produce: a batch becomes one row in each queue it touches; success means that the rows are stored.

With an idempotency key the batch is handed over: reserve, write the reservations under the key, put.
Whoever comes with the same key finds the reservations, repeats the puts, and gives the same answer.

    table      keys
    partition  {subject}~{generation}, or * for batches that span subjects
    sort       the idempotency key
    value      Remembered, msgpack array
"""

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Conflict, Filled, Sealed, Unavailable
from hourwheel.logs.codec import encode
from hourwheel.logs.item import Held, Slot
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import rows_of
from hourwheel.meta.directory import Directory
from hourwheel.model import IDEMPOTENCY_MS, AddressedMessage, NewMessage, Placed, Subject
from hourwheel.ports import Key, Table

_TRIES = 5


class Remembered(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What an idempotency key stands for. ``places`` are [row, number] for each part in order;
    ``queues`` is each subject's number of queues then, so that the split can be made again, and
    ``generations`` which subject of that name it was."""

    digest: bytes
    prefix: str
    queues: dict[str, int]
    at_ms: int
    token: bytes
    places: tuple[tuple[int, int], ...]
    generations: dict[str, int]


@dataclass(frozen=True)
class Part:
    """The messages of a batch that share a queue, and their indexes in the batch."""

    subject: Subject
    queue: int
    messages: Sequence[NewMessage]
    indexes: Sequence[int]

    @property
    def log(self) -> str:
        return self.subject.log(self.queue)


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
) -> list[Placed]:
    """Stores a batch of one subject; where each message is, in order."""
    return _produce(context, directory, {subject: range(len(messages))}, messages, idempotency, keyspace=subject)


def produce_many(
    context: Context,
    directory: Directory,
    messages: Sequence[AddressedMessage],
    idempotency: IdempotencyKey | None = None,
) -> list[Placed]:
    """Stores a batch that spans subjects; where each message is, in order. Without a key, a failure half-way leaves
    the parts that were stored."""
    by_subject: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_subject.setdefault(message.subject, []).append(index)
    return _produce(context, directory, by_subject, messages, idempotency, keyspace="*")


def _produce(
    context: Context,
    directory: Directory,
    indexes: dict[str, Sequence[int]] | dict[str, list[int]] | dict[str, range],
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None,
    *,
    keyspace: str,
) -> list[Placed]:
    named = [index for index, message in enumerate(messages) if message.id is None]
    for _ in range(_TRIES):
        subjects = {name: directory.subject(name, create=True) for name in indexes}
        batch = _Batch(context, subjects, indexes, messages, named)
        try:
            if idempotency is None:
                parts, places = batch.store()
            else:
                parts, places = batch.store_once(idempotency, keyspace)
        except Sealed:
            # The subject was deleted since it was looked up: look again.
            for name in subjects:
                directory.forget(name)
            continue
        for name in subjects:
            context.arrivals.announce(name)
        return _results(parts, places, len(messages))
    raise Unavailable("the subject keeps being deleted: send the batch again")


@dataclass(frozen=True)
class _Batch:
    context: Context
    subjects: dict[str, Subject]
    indexes: dict[str, Sequence[int]] | dict[str, list[int]] | dict[str, range]
    messages: Sequence[NewMessage]
    unnamed: Sequence[int]

    def store(self) -> tuple[list[Part], list[Reservation]]:
        at_ms = self.context.clock.now_ms()
        parts = self._split(self.context.ids.unique(at_ms), {name: s.queues for name, s in self.subjects.items()})
        rows = self._rows(parts, at_ms)

        def append(context: Context) -> list[Reservation]:
            logs = [context.log(part.log) for part in parts]
            # All are reserved before one is stored: a deleted subject is found out while nothing is.
            places = [log.reserve(row.count) for log, row in zip(logs, rows, strict=True)]
            try:
                return [log.append(row, place) for log, row, place in zip(logs, rows, places, strict=True)]
            except Sealed:
                if len(parts) == 1:
                    raise
                # Other parts may be stored: stored again they would stand twice.
                raise Unavailable("a subject was deleted while the batch was stored: send the batch again") from None

        return parts, self.context.atomically(append)

    def store_once(self, idempotency: IdempotencyKey, keyspace: str) -> tuple[list[Part], list[Reservation]]:
        at_ms = self.context.clock.now_ms()
        queues = {name: subject.queues for name, subject in self.subjects.items()}
        prefix = self.context.ids.unique(at_ms)
        parts = self._split(prefix, queues)
        rows = self._rows(parts, at_ms)
        space = self.subjects[keyspace].log(0).rsplit("/", 1)[0] if keyspace in self.subjects else keyspace

        def first(context: Context) -> Held[Remembered] | list[Reservation]:
            slot = Slot(context.store, context.ids, Key(Table.KEYS, space, idempotency.key), Remembered)
            reserved = [context.log(part.log).reserve(row.count) for part, row in zip(parts, rows, strict=True)]
            offer = Remembered(
                digest=idempotency.digest,
                prefix=prefix,
                queues=queues,
                at_ms=at_ms,
                token=context.ids.token(),
                places=tuple((place.row, place.number) for place in reserved),
                generations=self._generations,
            )
            held = self._remember(slot, offer)
            if held.value.token != offer.token:
                for part, row, place in zip(parts, rows, reserved, strict=True):
                    context.log(part.log).abandon(place, row)
                return held
            return _place(context, slot, held, parts, rows)

        outcome = self.context.atomically(first)
        if isinstance(outcome, list):
            return parts, outcome
        return self._repeat(outcome, idempotency, space)

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
        self, held: Held[Remembered], idempotency: IdempotencyKey, space: str
    ) -> tuple[list[Part], list[Reservation]]:
        first = held.value
        if first.digest != idempotency.digest:
            raise Conflict(
                "idempotency-key-reused",
                "this idempotency key came with other content before: use a new key for a new batch",
                field="idempotency_key",
            )
        if first.generations != self._generations:
            raise Conflict(
                "subject-deleted",
                "a subject of this batch was deleted since it was first sent: send what is still wanted with a new key",
                field="idempotency_key",
            )
        parts = self._split(first.prefix, first.queues)
        # What was not stored then is accepted now, and retained from now on.
        rows = self._rows(parts, self.context.clock.now_ms())

        def again(context: Context) -> list[Reservation]:
            slot = Slot(context.store, context.ids, Key(Table.KEYS, space, idempotency.key), Remembered)
            return _place(context, slot, held, parts, rows, again=True)

        return parts, self.context.atomically(again)

    @property
    def _generations(self) -> dict[str, int]:
        return {name: subject.generation for name, subject in self.subjects.items()}

    def _split(self, prefix: str, queues: dict[str, int]) -> list[Part]:
        """The batch by queue, the same for the same prefix and numbers of queues; names the unnamed messages."""
        for index in self.unnamed:
            self.messages[index].id = f"{prefix}-{index}"
        parts = []
        for name, subject in self.subjects.items():
            if queues[name] == 1:
                parts.append(
                    Part(subject, 0, [self.messages[index] for index in self.indexes[name]], self.indexes[name])
                )
                continue
            by_queue: dict[int, list[int]] = {}
            for index in self.indexes[name]:
                lane = self.messages[index].key or prefix
                by_queue.setdefault(crc32(lane.encode()) % queues[name], []).append(index)
            parts += [
                Part(subject, queue, [self.messages[index] for index in at], at)
                for queue, at in sorted(by_queue.items())
            ]
        return parts

    def _rows(self, parts: Sequence[Part], at_ms: int) -> list[Row]:
        longest = max(part.subject.retention_ms for part in parts)
        rows = rows_of(
            [encode(part.messages) for part in parts],
            blobs=self.context.blobs,
            name=self.context.ids.unique(at_ms),
            at_ms=at_ms,
            expires_ms=at_ms + longest,
            inline_bytes=self.context.settings.inline_bytes,
        )
        return [
            msgspec.structs.replace(row, expires_ms=at_ms + part.subject.retention_ms)
            for part, row in zip(parts, rows, strict=True)
        ]


def _place(
    context: Context,
    slot: Slot[Remembered],
    held: Held[Remembered],
    parts: Sequence[Part],
    rows: Sequence[Row],
    *,
    again: bool = False,
) -> list[Reservation]:
    """Puts each part at its remembered place; a place that was filled is taken anew and remembered first."""
    while True:
        current = held.value
        places = [Reservation(*place) for place in current.places]
        for index, (part, row) in enumerate(zip(parts, rows, strict=True)):
            log = context.log(part.log)
            if again and places[index].row < log.trimmed() and log.get(places[index].row) is None:
                # It was stored and its time is over: a filler would still stand there (see ``FILLER_MS``).
                continue
            try:
                log.put(places[index], row, current.token)
            except Filled:
                places[index] = log.reserve(row.count)
        moved = tuple((place.row, place.number) for place in places)
        if moved == current.places:
            return places
        value = msgspec.structs.replace(current, places=moved)
        outcome = slot.swap(held.token, value, expires_ms=current.at_ms + IDEMPOTENCY_MS)
        if outcome.held is None:
            raise Unavailable("the idempotency key ran out meanwhile: send the batch again with a new one")
        held = outcome.held


def _results(parts: Sequence[Part], places: Sequence[Reservation], count: int) -> list[Placed]:
    found: list[Placed | None] = [None] * count
    for part, place in zip(parts, places, strict=True):
        queue, number = part.queue, place.number
        for step, (index, message) in enumerate(zip(part.indexes, part.messages, strict=True)):
            found[index] = Placed(message.id or "", queue, number + step)
    return [placed for placed in found if placed is not None]
