"""Tells producers where the messages of an accepted batch are: message by message, or part by part. Checks before that
the subjects of delayed messages are there."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.errors import HourwheelError, Sealed
from hourwheel.logs.log import Reservation
from hourwheel.model.messages import CompactProduceResult, SendResult
from hourwheel.model.subjects import Subject
from hourwheel.producing.routing import BatchPart
from hourwheel.reach.storages import check_reserves
from hourwheel.registry.records import subject_record
from hourwheel.times import rfc3339


@dataclass(frozen=True)
class StoredBatch:
    """A batch that is stored: its parts, each with the reservation that it took. A message without an id of its own has
    the id ``{prefix}-{index}``, its index in the batch of ``count`` messages."""

    prefix: str
    parts: Sequence[BatchPart]
    reservations: Sequence[Reservation]
    count: int

    def send_results(self, scheduled_id_of: Callable[[SchedulePosition], str]) -> list[SendResult]:
        """Returns where each message is, in the order of the batch. ``scheduled_id_of`` makes the ids of delayed
        messages."""
        results: list[SendResult | None] = [None] * self.count
        for part, reservation in zip(self.parts, self.reservations, strict=True):
            if part.bucket is None:
                for step, (index, message) in enumerate(zip(part.indexes, part.messages, strict=True)):
                    message_id = message.id or f"{self.prefix}-{index}"
                    results[index] = SendResult(message_id, part.queue, reservation.first_seq + step)
                continue
            bucket = Bucket.of_log(reservation.log)
            for step, (index, message, due_ms) in enumerate(zip(part.indexes, part.messages, part.dues, strict=True)):
                scheduled_id = scheduled_id_of(SchedulePosition(bucket, reservation.row_no, step))
                message_id = message.id or f"{self.prefix}-{index}"
                results[index] = SendResult(message_id, scheduled=rfc3339(due_ms), scheduled_id=scheduled_id)
        return [result for result in results if result is not None]

    def compact(self) -> CompactProduceResult | None:
        """Returns where the parts are, without the ids of their messages; None for a batch with delayed messages."""
        if any(part.bucket is not None for part in self.parts):
            return None
        if len(self.parts) == 1:
            return CompactProduceResult(self.prefix, [(self.parts[0].queue or 0, self.reservations[0].first_seq, None)])
        return CompactProduceResult(
            self.prefix,
            [
                (part.queue or 0, reservation.first_seq, list(part.indexes))
                for part, reservation in zip(self.parts, self.reservations, strict=True)
            ],
        )


@contextmanager
def partly_stored(happened: Callable[[], bool]) -> Iterator[None]:
    """Notes in an error within the block whether a part of the batch stays stored: what ``happened`` returns then."""
    try:
        yield
    except HourwheelError as error:
        error.stored_part = happened()
        raise


def within_reserves(context: Context, parts: list[BatchPart]) -> list[BatchPart]:
    """Returns the parts of a batch, none of which is stored yet. Raises ``StorageFull`` or ``CellFull`` if a cell keeps
    the space that it has left."""
    check_reserves(context, (part.log for part in parts))
    return parts


def check_current(context: Context, parts: Sequence[BatchPart]) -> None:
    """Raises ``Sealed`` if a subject of delayed messages was deleted since its record was read. No seal of a schedule
    log tells so, and its messages would be handed to nobody. One read for each subject with delayed messages."""
    delayed = dict.fromkeys(part.subject.name for part in parts if part.bucket is not None)
    subjects = {part.subject.name: part.subject for part in parts}
    check_subjects(context, [subjects[name] for name in delayed])  # in the order of the batch


def check_subjects(context: Context, subjects: Iterable[Subject]) -> None:
    """Raises ``Sealed`` if one of the subjects was deleted since its record was read. One read for each."""
    for subject in subjects:  # in their order: simulations replay each read
        current = subject_record(context, subject.name).load()
        if current is None or current.value.deleted or current.value.generation != subject.generation:
            raise Sealed(subject.name)
