"""Decides which queue, or which hour bucket, each message of a batch goes to. Nothing here reads or writes.

One rule chooses the queue of every message, sent at once or delayed (see ``queue_of``). Messages with a key go to the
queue of the key. Messages without a key that were sent together stay together: their batch costs one row, and batches
spread over the queues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.errors import Rejected, TooLarge
from hourwheel.logs.entries import DueTimes, encode_entry
from hourwheel.model.due import Due
from hourwheel.model.fields import MAX_DELAY_MS
from hourwheel.model.messages import NewMessage, are_plain
from hourwheel.model.subjects import Subject
from hourwheel.wire.words import no_queue


def queue_of(key: str | None, batch: str, queues: int) -> int:
    """Returns the queue of a message, of ``queues``: messages with the same ``key`` share a queue, and so do messages
    of one ``batch`` that have no key. The rule is part of the API (docs/api/sending.md), because clients may use it.

    ``batch`` is a unique name: the request's prefix of message ids for messages that are sent at once, the name of
    their row in the schedule log (``delayed_batch``) for delayed ones.
    """
    return _share(key or batch, queues)


def delayed_batch(schedule_log: str, row_no: int) -> str:
    """Returns the name of a batch of delayed messages, which is one row of a schedule log. A request stores one row in
    each hour bucket, or two if some of its messages may come a minute late."""
    return f"{schedule_log}/{row_no}"


def shard_of(batch: str, shards: int) -> int:
    """Returns the shard of the hour buckets that take the batch's delayed messages: one shard for the whole batch, so
    that each hour costs one row."""
    return _share(batch, shards)


def _share(name: str, shares: int) -> int:
    return 0 if shares == 1 else crc32(name.encode()) % shares


@dataclass(frozen=True)
class BatchPart:
    """The messages of a batch that go to one queue, or to one bucket in which they fall due at ``dues`` (Unix
    milliseconds). ``indexes`` are their indexes in the batch. ``queues`` is the number of queues by which the queue was
    chosen."""

    subject: Subject
    queue: int | None
    messages: Sequence[NewMessage]
    indexes: Sequence[int]
    queues: int = 1
    bucket: Bucket | None = None
    dues: Sequence[int] = ()
    minute: bool = False
    """Whether the messages may come up to a minute late."""
    elsewhere: str = ""
    """The log in which the part was reserved, if it is not the one that takes the queue's messages now."""

    @property
    def log(self) -> str:
        if self.elsewhere:
            return self.elsewhere
        if self.bucket is not None:
            return self.bucket.log
        assert self.queue is not None
        return self.subject.log(self.queue)

    def in_log(self, log: str) -> "BatchPart":
        """Returns the part as it is stored in a log that may not be its own."""
        return replace(self, elsewhere=log) if self.bucket is None else replace(self, bucket=Bucket.of_log(log))

    @property
    def outdated(self) -> bool:
        """Returns whether the subject has another number of queues than when the queue was chosen."""
        return self.bucket is None and self.queues != self.subject.queues

    @property
    def meta(self) -> bytes:
        if self.bucket is None:
            return b""
        subject = self.subject
        return encode_entry(DueTimes.of(subject.name, subject.generation, None, self.dues, minute=self.minute))


@dataclass(frozen=True, kw_only=True)
class RoutingInputs:
    """The inputs of a split beside the messages: ``batch`` is the unique name of the batch, ``queues`` the number of
    queues of each subject. ``at_ms`` is the time from which delays count, ``cut`` the length of a bucket in minutes and
    the number of shards."""

    batch: str
    queues: Mapping[str, int]
    at_ms: int
    cut: tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """The messages of one request, and their indexes by subject. ``dues`` are the due times of the delayed messages, by
    index."""

    subjects: Mapping[str, Subject]
    indexes: Mapping[str, Sequence[int]]
    messages: Sequence[NewMessage]
    dues: Mapping[int, Due]

    def split(self, inputs: RoutingInputs, most_buckets: int) -> list[BatchPart]:
        """Divides the batch into parts, subject by subject, buckets before queues, each in ascending order. Equal
        inputs give equal parts, so that a repeated batch finds its rows. Raises ``TooLarge`` when a subject's messages
        fall due in more than ``most_buckets`` buckets."""
        parts: list[BatchPart] = []
        for name, subject in self.subjects.items():
            at_once, delayed = self._by_time(self.indexes[name], inputs)
            by_bucket = self._by_bucket(delayed, inputs)
            _check_buckets(len({bucket for bucket, _ in by_bucket}), most_buckets, inputs.cut)
            parts += [self._delayed_part(subject, *row, by_bucket[row]) for row in sorted(by_bucket)]
            parts += self._queue_parts(subject, at_once, inputs.batch, inputs.queues[name])
        return parts

    def whole(self, inputs: RoutingInputs) -> bool:
        """Returns whether the batch is certainly one part in one queue, in the order of its messages."""
        if self.dues or len(self.subjects) > 1:
            return False
        (name,) = self.subjects
        return inputs.queues[name] == 1 or all(
            message.key is None and message.queue is None for message in self.messages
        )

    def rerouted(self, parts: Sequence[BatchPart], batch: str, queues: int) -> list[BatchPart]:
        """Divides the messages of parts of one subject by another number of queues. ``batch`` is the unique name of the
        batch."""
        indexes = sorted(index for part in parts for index in part.indexes)
        return self._queue_parts(parts[0].subject, indexes, batch, queues)

    def _queue_parts(self, subject: Subject, indexes: Sequence[int], batch: str, queues: int) -> list[BatchPart]:
        by_queue = self._by_queue(indexes, batch, queues)
        return [self._queue_part(subject, queue, by_queue[queue], queues) for queue in sorted(by_queue)]

    def _by_time(self, indexes: Sequence[int], inputs: RoutingInputs) -> tuple[Sequence[int], list[tuple[int, int]]]:
        """Returns the indexes of the messages that are sent at once, and those of the others with their due times."""
        if not self.dues:
            return indexes, []
        at_once, delayed = [], []
        for index in indexes:
            due = self.dues.get(index)
            due_ms = inputs.at_ms if due is None else due.due_ms(inputs.at_ms)
            # A due time that is past means at once.
            if due_ms <= inputs.at_ms:
                at_once.append(index)
            else:
                delayed.append((index, min(due_ms, inputs.at_ms + MAX_DELAY_MS)))
        return at_once, delayed

    def _by_bucket(
        self, delayed: Sequence[tuple[int, int]], inputs: RoutingInputs
    ) -> dict[tuple[Bucket, bool], list[tuple[int, int]]]:
        """Returns the delayed messages by bucket and by whether they may come a minute late: each is a row."""
        # From the inputs, not the settings: a repeated batch must find its buckets after the settings have changed.
        minutes, shards = inputs.cut
        shard = shard_of(inputs.batch, shards)
        by_bucket: dict[tuple[Bucket, bool], list[tuple[int, int]]] = {}
        for index, due_ms in delayed:
            row = Bucket.at(due_ms, minutes, shard), self.messages[index].precision is not None
            by_bucket.setdefault(row, []).append((index, due_ms))
        return by_bucket

    def _by_queue(self, indexes: Sequence[int], batch: str, queues: int) -> Mapping[int, Sequence[int]]:
        # The usual case: one queue takes the indexes as they are, without a loop over the messages.
        if queues == 1:
            return {0: indexes} if indexes else {}
        by_queue: dict[int, list[int]] = {}
        for index in indexes:
            message = self.messages[index]
            queue = queue_of(message.key, batch, queues) if message.queue is None else message.queue
            by_queue.setdefault(queue, []).append(index)
        return by_queue

    def _queue_part(self, subject: Subject, queue: int, indexes: Sequence[int], queues: int) -> BatchPart:
        if not self.dues and len(indexes) == len(self.messages):
            # The usual case, without a call for each message.
            messages = self.messages
            if not are_plain(messages):
                messages = [message if message.queue is None else _without_queue(message) for message in messages]
            return BatchPart(subject, queue, messages, indexes, queues)
        return BatchPart(subject, queue, [_without_queue(self._stored(index)) for index in indexes], indexes, queues)

    def _delayed_part(
        self, subject: Subject, bucket: Bucket, minute: bool, delayed: Sequence[tuple[int, int]]
    ) -> BatchPart:
        indexes = [index for index, _ in delayed]
        messages = [self._stored(index) for index in indexes]
        dues = [due_ms for _, due_ms in delayed]
        return BatchPart(subject, None, messages, indexes, bucket=bucket, dues=dues, minute=minute)

    def _stored(self, index: int) -> NewMessage:
        """Returns the message as it is stored: without its delay, because the row's meta holds the due time."""
        message = self.messages[index]
        if index not in self.dues:
            return message
        return msgspec.structs.replace(message, delay=None, deliver_at=None, precision=None)


def _without_queue(message: NewMessage) -> NewMessage:
    """Returns the message as the row of a queue stores it: the row implies the queue."""
    return message if message.queue is None else msgspec.structs.replace(message, queue=None)


def _check_buckets(buckets: int, most: int, cut: tuple[int, int]) -> None:
    if buckets > most:
        raise TooLarge(
            "batch-too-large",
            f"the messages of a batch may fall due in at most {most} different spans of {cut[0]} minutes, these fall"
            f" due in {buckets}: split the batch",
            field="messages",
        )


def check_queues(
    subjects: Mapping[str, Subject], indexes: Mapping[str, Sequence[int]], messages: Sequence[NewMessage]
) -> None:
    """Raises ``Rejected`` for a message that names a queue which its subject does not have."""
    if are_plain(messages):
        return
    named = {index for index, message in enumerate(messages) if message.queue is not None}
    for name, subject in subjects.items() if named else ():
        for index in named.intersection(indexes[name]):
            if (queue := messages[index].queue or 0) >= subject.queues:
                detail = no_queue(name, queue, subject.queues)
                raise Rejected("field-invalid", detail, field=f"messages[{index}].queue")
