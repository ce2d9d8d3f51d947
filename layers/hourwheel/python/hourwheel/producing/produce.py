"""Stores a batch: one row in each queue, and one in each hour bucket, to which its messages go.

A call that succeeds has stored every row. With an idempotency key the batch is handed over: reserve the rows, write the
reservations under the key, put the rows (see ``idempotency.py``). ``routing.py`` decides which message goes where.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import ensure_wheel_by
from hourwheel.cells.moves import refresh_route
from hourwheel.context import Context
from hourwheel.errors import Conflict, NotFound, Sealed, Unavailable
from hourwheel.logs.log import Reservation
from hourwheel.model.due import Due, check_limit, dues_of
from hourwheel.model.fields import MAX_DELAY_MS
from hourwheel.model.messages import AddressedMessage, NewMessage
from hourwheel.model.subjects import Subject
from hourwheel.producing.batch_writer import BatchWriter
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.routing import Batch, BatchPart, check_queues
from hourwheel.producing.stored_batches import (
    StoredBatch,
    partly_stored,
)
from hourwheel.reach.outages import after_outage, check_serving
from hourwheel.registry.registry import Registry

_TRIES = 5  # each needs a queue that moves, or is deleted, between its look-up and the reservation: rare even once


def produce(
    context: Context,
    registry: Registry,
    subject: str,
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None = None,
    *,
    create: bool = True,
) -> StoredBatch:
    """Stores a batch of one subject, and returns where its messages were stored.

    Creates the subject if it does not exist; without ``create`` raises ``NotFound``. Raises ``Conflict`` for an
    idempotency key that came with another batch and for a read-only subject, and ``TooLarge`` for delayed messages in
    too many buckets. Raises ``Unavailable`` when the outcome is open: the caller sends the batch again.
    """
    by_subject = {subject: range(len(messages))}
    return _produce(context, registry, by_subject, messages, idempotency, keyspace=subject, create=create)


def produce_many(
    context: Context,
    registry: Registry,
    messages: Sequence[AddressedMessage],
    idempotency: IdempotencyKey | None = None,
    *,
    create: bool = True,
) -> StoredBatch:
    """Stores a batch that spans subjects, as ``produce`` does. Without an idempotency key a failure half-way leaves the
    parts that are stored."""
    by_subject: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        by_subject.setdefault(message.subject, []).append(index)
    return _produce(context, registry, by_subject, messages, idempotency, keyspace="*", create=create)


def _produce(
    context: Context,
    registry: Registry,
    indexes: Mapping[str, Sequence[int]],
    messages: Sequence[NewMessage],
    idempotency: IdempotencyKey | None,
    *,
    keyspace: str,
    create: bool,
) -> StoredBatch:
    dues = dues_of(messages)
    if dues:
        _check_limits(context, registry, indexes, dues)
    for _ in range(_TRIES):
        subjects = _subjects(context, registry, list(indexes), idempotency, keyspace, create=create)
        _check_read_only(context, subjects.values(), idempotency, keyspace)
        check_queues(subjects, indexes, messages)
        batch = BatchWriter(context, Batch(subjects, indexes, messages, dues))
        try:
            # After an outage the next request finds where the queues of a lost cell go on.
            with after_outage(partial(_forget, registry, subjects)):
                stored = batch.store() if idempotency is None else _stored_once(batch, idempotency, keyspace)
                check_serving(context, [reservation.log for reservation in stored.reservations])
        except Sealed:
            batch.forget_ids()
            # A queue has moved, or the subject was deleted, after the look-up: the next try finds the log that follows,
            # or creates the subject.
            for seen in subjects.values():
                refresh_route(registry, seen)
            continue
        # After the rows: the pull that wakes must find them, and the wheel that starts must read them.
        _announce(context, stored.parts, stored.reservations)
        return stored
    raise Unavailable("the subject keeps being moved or deleted: send the batch again")


def _forget(registry: Registry, names: Iterable[str]) -> None:
    for name in names:
        registry.forget_subject(name)


def _stored_once(batch: BatchWriter, idempotency: IdempotencyKey, keyspace: str) -> StoredBatch:
    with partly_stored(lambda: True):  # an earlier request with the key may have stored a part
        return batch.store_once(idempotency, keyspace)


def _subjects(
    context: Context,
    registry: Registry,
    names: Sequence[str],
    idempotency: IdempotencyKey | None,
    keyspace: str,
    *,
    create: bool,
) -> dict[str, Subject]:
    """Returns the subjects by name, and with ``create`` creates each that does not exist; else raises ``NotFound``.
    Raises ``Conflict``, and creates none, for a repeated batch of which a subject was deleted."""
    try:
        return {name: registry.subject(name) for name in names}
    except NotFound:
        if idempotency is not None:
            idempotency.refuse_if_used(context, keyspace)
        return {name: registry.subject(name, create=create) for name in names}


def _check_read_only(
    context: Context, subjects: Iterable[Subject], idempotency: IdempotencyKey | None, keyspace: str
) -> None:
    """Raises ``Conflict`` for a read-only subject, unless the batch is a repetition: the first request may have been
    accepted."""
    name = next((subject.name for subject in subjects if subject.read_only), None)
    if name is not None and (idempotency is None or idempotency.first(context, keyspace) is None):
        raise Conflict(
            "subject-read-only",
            f"subject {name!r} is read-only and nothing of the batch was stored: send it elsewhere, or set read_only"
            f" to false with PUT /v1/subjects/{name} or hourwheel subject create {name} --no-read-only",
            field="subject",
        )


def _check_limits(
    context: Context, registry: Registry, indexes: Mapping[str, Sequence[int]], dues: Mapping[int, Due]
) -> None:
    """Raises ``Rejected`` for a delay that is too long, unless its subject shortens delays to the longest one allowed
    (``clamp_delays``). Creates no subject."""
    now_ms = context.clock.now_ms()
    for index, due in dues.items():
        due_ms = due.due_ms(now_ms)
        if due_ms > now_ms + MAX_DELAY_MS:
            name = next(name for name, of_subject in indexes.items() if index in of_subject)
            try:
                clamps = registry.subject(name).clamp_delays
            except NotFound:
                clamps = False
            if not clamps:
                check_limit(due_ms, now_ms, due.field)


def _announce(context: Context, parts: Sequence[BatchPart], reservations: Sequence[Reservation]) -> None:
    """Wakes the pulls that wait for the subjects, and starts the wheels of the buckets in time."""
    for name in {part.subject.name for part in parts if part.bucket is None}:
        context.wakeups.announce(name)
    for part, reservation in zip(parts, reservations, strict=True):
        if part.bucket is not None:
            ensure_wheel_by(context, Bucket.of_log(reservation.log), min(part.dues), minute=part.minute)
