"""Divides due messages into batches: each becomes one row of a target log."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TypeAlias

import msgspec

from hourwheel.buckets.starts import COARSE_MS
from hourwheel.delay.due_messages import QueueName
from hourwheel.delay.schedule_rows import ScheduleRow, ScheduleRowCache
from hourwheel.errors import Corrupt, NotFound
from hourwheel.handover.handover import Transfer
from hourwheel.logs.codec import decode_one
from hourwheel.logs.entries import DueTimes
from hourwheel.model.fields import BATCH_BYTES, BATCH_MESSAGES, DEAD_RETENTION_MS
from hourwheel.model.log_names import LogName, Member
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.producing.routing import delayed_batch, queue_of
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

DUE, AGAIN, ORPHANED, DROPPED, DAMAGED = "due", "again", "orphaned", "dropped", "damaged"
"""Where a transfer's messages go: to the subject's queue; to a group's retry log; to the dead log of a deleted subject;
nowhere, because their group was deleted; nowhere, because they cannot be read."""

_STEP_BYTES = 4 << 20  # the largest batch; a message for another subject waits until its step is stored
_DECODED_BYTES = 4 << 20
"""A step decodes rows up to this size: 20 rows of a thousand messages, or a thousand rows of one. Either takes 10 to 20
ms. Two thousand due messages that lay in as many large rows took more than a second."""


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
    destination: DueTimes
    queue: QueueName = -1
    """The queue of due messages from which they come; -1 for none."""
    is_alone: bool = False
    """Whether the other messages of the destination go to the same log."""
    picks: list[Pick] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    size: int = 0
    earliest_ms: int = 0
    """When the first of the messages was due, or a minute later if it may be a minute late."""
    kept_until_ms: int = 0
    """The messages are kept until this time at least, also where the target keeps others for less."""
    named: Transfer | None = None
    """The transfer in a dispatch row that names these messages already, and whose row was filled."""

    @property
    def still_named(self) -> Transfer | None:
        """``named`` for the messages of this batch alone: a batch may be divided when it is handed over again."""
        return self.named and msgspec.structs.replace(self.named, picks=tuple(self.picks))

    def expires_ms(self, at_ms: int) -> int:
        """Returns when the row expires that contains the batch and is made at ``at_ms``."""
        return max(at_ms + self.target.keep_ms, self.kept_until_ms)

    def fits(self, size: int) -> bool:
        return len(self.picks) < BATCH_MESSAGES and (not self.picks or self.size + size <= BATCH_BYTES)

    def add(self, pick: Pick, message: Message | None, size: int, due_ms: int) -> None:
        self.picks.append(pick)
        self.size += size
        self.earliest_ms = min(self.earliest_ms or due_ms, due_ms)
        if message is not None:
            self.messages.append(message)


class _Source:
    """The due messages of one row of the schedule log."""

    __slots__ = ("destination", "messages", "row_no", "sent_at", "shared", "whole")

    def __init__(self, row_no: int, row: ScheduleRow, indexes: Sequence[int]) -> None:
        self.row_no = row_no
        self.destination = row.destination
        self.sent_at = row.sent_at
        self.messages = {index: row.messages[index] for index in indexes}
        self.whole: tuple[Target, str] | None = None
        """The target of all messages; None if it depends on the message."""
        self.shared: tuple[Target, str] | None = None
        """The target of messages without a key or a queue of their own; None before the first one."""

    @property
    def size(self) -> int:
        return sum(len(encoded) for _, encoded in self.messages.values())

    def message(self, index: int, texts: dict[int, str]) -> Message | None:
        """Returns the message as it is sent, with its times; None when it cannot be read. ``texts`` caches due times
        as text."""
        due_ms, encoded = self.messages[index]
        if not encoded:
            return None
        try:
            message = decode_one(encoded)
        except Corrupt:
            return None
        if self.destination.member is None:
            due_at = texts.get(due_ms)
            if due_at is None:
                due_at = texts[due_ms] = rfc3339(due_ms)
            message.due_at = due_at
            if message.produced_at is None:
                message.produced_at = self.sent_at
        return message


@dataclass
class OutgoingBatches:
    """Builds the outgoing batches of one bucket, whose schedule log is ``log``. For one thread."""

    registry: Registry
    log: str
    row_cache: ScheduleRowCache

    def of(
        self, slices: Sequence[tuple[QueueName, Sequence[Pick]]], most: int
    ) -> tuple[list[OutgoingBatch], list[list[Pick]]]:
        """Returns the messages at these positions as batches, in order, and the positions of each slice that would be
        too much for one step. At most ``most`` batches."""
        sources = self._sources(picks for _, picks in slices)
        # One by one, the records of a hundred subjects took a second on AWS.
        self.registry.read_ahead(source.destination.subject for source in sources.values())
        step = _StepBatches(_Targets(self.registry, self.log), sources, most)
        return step.batches, [step.left(queue, picks) for queue, picks in slices]

    def prepare(self, picks: Sequence[Pick]) -> int:
        """Reads the messages at these positions, which are due next, into the cache: those of one step, as more of them
        would drop one another from the cache, and make the wheel late. Returns the number of positions, from the first
        one on, that were read."""
        return _read(picks, self._sources([picks]))

    def of_transfer(self, transfer: Transfer) -> OutgoingBatch:
        """Returns the batch that a transfer hands over, read again from the schedule log."""
        indexes = _indexes_by_row(transfer.picks)
        texts: dict[int, str] = {}
        messages: dict[Pick, Message | None] = {}
        for row_no, row in self.row_cache.rows(indexes):
            source = _Source(row_no, row, indexes[row_no])
            messages |= {(row_no, index): source.message(index, texts) for index in indexes[row_no]}
        destination = source.destination
        member = LogName.parse(transfer.log).member if transfer.kind == AGAIN else None
        keep_ms = transfer.expires_ms - transfer.at_ms
        target = Target(transfer.kind, transfer.log, keep_ms, destination.subject, member.group if member else None)
        batch = OutgoingBatch(target, destination)
        for pick in transfer.picks:
            batch.add(pick, messages[pick], 0, 0)
        return batch

    def _sources(self, slices: Iterable[Sequence[Pick]]) -> dict[int, _Source]:
        """Returns the rows of these positions, those of the first slices first: as many as one step reads, and at least
        one."""
        indexes: dict[int, list[int]] = {}
        for picks in slices:
            for row_no, some in _indexes_by_row(picks).items():
                indexes.setdefault(row_no, []).extend(some)
        sources: dict[int, _Source] = {}
        total, decoded = 0, self.row_cache.decoded_bytes
        for row_no, row in self.row_cache.rows(indexes):
            source = sources[row_no] = _Source(row_no, row, indexes[row_no])
            total += source.size
            # The positions of the other rows are the first ones of the next step.
            if total > _STEP_BYTES or self.row_cache.decoded_bytes - decoded > _DECODED_BYTES:
                break
        return sources


@dataclass
class _StepBatches:
    """Fills the batches of one step: at most ``most``."""

    targets: "_Targets"
    sources: Mapping[int, _Source]
    most: int
    batches: list[OutgoingBatch] = field(default_factory=list)
    _open: dict[tuple[str, QueueName], OutgoingBatch] = field(default_factory=dict)
    _texts: dict[int, str] = field(default_factory=dict)

    def left(self, queue: QueueName, picks: Sequence[Pick]) -> list[Pick]:
        """Adds the messages of a queue, and returns those for which the step has no room."""
        read = _read(picks, self.sources)
        left = [pick for pick in picks[:read] if not self.takes(self.sources[pick[0]], pick, queue)]
        # Behind a row that is not read yet everything waits, to keep the order.
        return left + list(picks[read:])

    def takes(self, source: _Source, pick: Pick, queue: QueueName) -> bool:
        """Adds a message to the batch for its target; returns False where the step has no room for it."""
        message = source.message(pick[1], self._texts)
        due_ms, encoded = source.messages[pick[1]]
        target, target_name = self.targets.of(source, message)
        target_key = target_name, queue
        batch = self._open.get(target_key)
        if batch is None or not batch.fits(len(encoded)):
            if len(self.batches) == self.most:
                self._open.pop(target_key, None)  # to keep the order, later messages of the target wait, too
                return False
            batch = self._open[target_key] = OutgoingBatch(
                target, source.destination, queue, is_alone=source.whole is not None
            )
            self.batches.append(batch)
        batch.kept_until_ms = max(batch.kept_until_ms, source.destination.kept_until_ms)
        batch.add(pick, message, len(encoded), due_ms + COARSE_MS if source.destination.minute else due_ms)
        return True


class _Targets:
    """Chooses the targets of the messages of one step. The messages of a row have one target, unless their own key or
    queue decides."""

    def __init__(self, registry: Registry, log: str) -> None:
        self._registry = registry
        self._log = log
        self._resolved: dict[tuple[str, int, str | None], tuple[Subject | None, Target | None]] = {}

    def of(self, source: _Source, message: Message | None) -> tuple[Target, str]:
        """Returns the target, and a text by which equal targets are known."""
        if message is None:
            return _keyed(Target(DAMAGED, ""), source.destination)
        if source.whole is not None:
            return source.whole
        if message.key is not None or message.queue is not None:
            return self._choose(source, message)
        if source.shared is None:
            source.shared = self._choose(source, message)
        return source.shared

    def _choose(self, source: _Source, message: Message) -> tuple[Target, str]:
        destination = source.destination
        address = (destination.subject, destination.generation, destination.member)
        if address not in self._resolved:
            self._resolved[address] = self._resolve(destination)
        subject, fixed = self._resolved[address]
        if fixed is not None:
            source.whole = _keyed(fixed, destination)
            return source.whole
        assert subject is not None
        chosen = _keyed(_queue(subject, message, delayed_batch(self._log, source.row_no)), destination)
        if subject.queues == 1:
            source.whole = chosen
        return chosen

    def _resolve(self, destination: DueTimes) -> tuple[Subject | None, Target | None]:
        """Returns the subject, if the queue depends on the message; otherwise the target of all messages of the row."""
        try:
            subject = self._registry.subject(destination.subject)
            # The cached record is that of a subject which was deleted since: read again.
            if subject.generation < destination.generation:
                subject = self._registry.current_subject(destination.subject)
        except NotFound:
            subject = None
        if subject is None or subject.generation != destination.generation:
            return None, orphan_target(destination)
        if destination.member is None:
            return subject, None
        member = Member.parse(destination.member)
        log = str(LogName.of_retries(destination.subject, destination.generation, member))
        return subject, Target(AGAIN, log, subject.retention_ms, destination.subject, member.group)


def _read(picks: Iterable[Pick], sources: Container[int]) -> int:
    """Returns the number of positions before the first one whose row is not read."""
    return len(list(takewhile(lambda pick: pick[0] in sources, picks)))


def _indexes_by_row(picks: Iterable[Pick]) -> dict[int, list[int]]:
    """Returns the indexes of the positions by their row, the rows in the order of their first positions."""
    indexes: dict[int, list[int]] = {}
    for row_no, index in picks:
        indexes.setdefault(row_no, []).append(index)
    return indexes


def orphan_target(destination: DueTimes) -> Target:
    """Returns the target of messages whose subject or group was deleted."""
    if destination.member is not None:
        return Target(DROPPED, "")
    log = str(LogName.of_orphans(destination.subject, destination.generation))
    return Target(ORPHANED, log, DEAD_RETENTION_MS, destination.subject)


def _keyed(target: Target, destination: DueTimes) -> tuple[Target, str]:
    return target, f"{target.kind} {target.log} {destination.subject}"


def _queue(subject: Subject, message: Message, batch: str) -> Target:
    named = message.queue if message.queue is not None and message.queue < subject.queues else None
    log = subject.log(queue_of(message.key, batch, subject.queues) if named is None else named)
    return Target(DUE, log, subject.retention_ms, subject.name)
