"""Routing: the queue, or the hour bucket, that each message of a batch goes to. Nothing here reads or writes.

One rule chooses the queue of every message, whether its sender wants it now or later (see ``queue_of``). Messages with
a key go to the queue of the key. Messages without a key that were sent together stay together: a batch then costs one
row, and batches spread over the queues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.due import Due
from hourwheel.errors import TooLarge
from hourwheel.logs.entries import DueTimes, encode_entry
from hourwheel.model import MAX_DELAY_MS, NewMessage, Subject


def queue_of(key: str | None, batch: str, queues: int) -> int:
    """The queue of a message: messages of one ``key`` share a queue, and messages of one ``batch`` that have no key do.

    ``batch`` is unique: a request's own prefix of ids for messages that are sent at once, the name of their row in the
    schedule log (``delayed_batch``) for messages that fall due.
    """
    return _share(key or batch, queues)


def delayed_batch(schedule_log: str, row_no: int) -> str:
    """The batch of delayed messages: a request stores one row in each hour bucket."""
    return f"{schedule_log}/{row_no}"


def shard_of(batch: str, shards: int) -> int:
    """The shard of the hour buckets that take the batch's delayed messages: one, so that each bucket gets one row."""
    return _share(batch, shards)


def _share(name: str, shares: int) -> int:
    return 0 if shares == 1 else crc32(name.encode()) % shares


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
    def meta(self) -> bytes:
        if self.bucket is None:
            return b""
        return encode_entry(DueTimes.of(self.subject.name, self.subject.generation, None, self.dues))


@dataclass(frozen=True, kw_only=True)
class RoutingInputs:
    """What the split of a batch depends on beside its messages: ``batch`` names it, ``queues`` is each subject's number
    of queues, ``at_ms`` the time from which delays count, ``cut`` the length in minutes and the shards of buckets."""

    batch: str
    queues: Mapping[str, int]
    at_ms: int
    cut: tuple[int, int]


@dataclass(frozen=True)
class Batch:
    """The messages of one request, and their indexes by subject. ``waits`` are those of delayed messages, by index."""

    subjects: Mapping[str, Subject]
    indexes: Mapping[str, Sequence[int]]
    messages: Sequence[NewMessage]
    waits: Mapping[int, Due]

    def split(self, inputs: RoutingInputs, most_buckets: int) -> list[Part]:
        """The parts of the batch: subject by subject, buckets before queues, each in order. The same inputs give the
        same parts. Raises ``TooLarge`` where a subject's messages fall due in more than ``most_buckets`` buckets."""
        parts: list[Part] = []
        for name, subject in self.subjects.items():
            at_once, delayed = self._by_time(self.indexes[name], inputs)
            by_bucket = self._by_bucket(delayed, inputs)
            _check_buckets(len(by_bucket), most_buckets, inputs.cut)
            parts += [self._delayed_part(subject, bucket, by_bucket[bucket]) for bucket in sorted(by_bucket)]
            by_queue = self._by_queue(at_once, inputs.batch, inputs.queues[name])
            parts += [self._queue_part(subject, queue, by_queue[queue]) for queue in sorted(by_queue)]
        return parts

    def _by_time(self, indexes: Sequence[int], inputs: RoutingInputs) -> tuple[Sequence[int], list[tuple[int, int]]]:
        """The indexes of the messages that are sent at once; and the indexes of the others, with their due times."""
        if not self.waits:
            return indexes, []
        at_once, delayed = [], []
        for index in indexes:
            wait = self.waits.get(index)
            due_ms = inputs.at_ms if wait is None else wait.due_ms(inputs.at_ms)
            if due_ms <= inputs.at_ms:
                at_once.append(index)
            else:
                delayed.append((index, min(due_ms, inputs.at_ms + MAX_DELAY_MS)))
        return at_once, delayed

    def _by_bucket(
        self, delayed: Sequence[tuple[int, int]], inputs: RoutingInputs
    ) -> dict[Bucket, list[tuple[int, int]]]:
        minutes, shards = inputs.cut
        shard = shard_of(inputs.batch, shards)
        by_bucket: dict[Bucket, list[tuple[int, int]]] = {}
        for index, due_ms in delayed:
            by_bucket.setdefault(Bucket.at(due_ms, minutes, shard), []).append((index, due_ms))
        return by_bucket

    def _by_queue(self, indexes: Sequence[int], batch: str, queues: int) -> Mapping[int, Sequence[int]]:
        if queues == 1:
            return {0: indexes} if indexes else {}
        by_queue: dict[int, list[int]] = {}
        for index in indexes:
            by_queue.setdefault(queue_of(self.messages[index].key, batch, queues), []).append(index)
        return by_queue

    def _queue_part(self, subject: Subject, queue: int, indexes: Sequence[int]) -> Part:
        return Part(subject, queue, [self._stored(index) for index in indexes], indexes)

    def _delayed_part(self, subject: Subject, bucket: Bucket, delayed: Sequence[tuple[int, int]]) -> Part:
        indexes = [index for index, _ in delayed]
        messages = [self._stored(index) for index in indexes]
        return Part(subject, None, messages, indexes, bucket, [due_ms for _, due_ms in delayed])

    def _stored(self, index: int) -> NewMessage:
        """The message as it is stored: its due time stands beside the batch."""
        message = self.messages[index]
        return msgspec.structs.replace(message, delay=None, deliver_at=None) if index in self.waits else message


def _check_buckets(buckets: int, most: int, cut: tuple[int, int]) -> None:
    if buckets > most:
        raise TooLarge(
            "batch-too-large",
            f"the messages of a batch may fall due in {most} times of {cut[0]} minutes at most, these do in"
            f" {buckets}: split it",
            field="messages",
        )
