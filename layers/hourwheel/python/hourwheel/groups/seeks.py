"""Moves groups to another position in their queues."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from hourwheel.context import Context
from hourwheel.errors import NotFound, Rejected
from hourwheel.groups import progress
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.reach.outages import Outages
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.registry import Registry
from hourwheel.wire.words import no_queue


class QueueSeek(NamedTuple):
    """A seek in one queue: the ``offset`` of the group's next message, and for a dry run the numbers of messages that
    would be served again and passed over."""

    offset: int
    served_again: int = 0
    passed_over: int = 0

    def beside(self, other: "QueueSeek") -> "QueueSeek":
        """Returns this seek with the messages of that of another consumer of the group."""
        return QueueSeek(self.offset, self.served_again + other.served_again, self.passed_over + other.passed_over)


SeekQueue: TypeAlias = Callable[[list[PullLog], progress.SeekStep], int]


@dataclass(frozen=True)
class Seeks:
    """Moves groups; a broadcast group with each of its consumers. Every method returns the offset of the group's next
    message, by queue. Raises ``CellUnavailable``, and moves nothing, while a cell with a part of such a queue
    cannot be reached. With
    ``dry_run`` nothing is written, and the answer counts the messages of each queue that would be served again or
    passed over, whether or not the group's filter takes them."""

    registry: Registry
    dry_run: bool = False

    @property
    def context(self) -> Context:
        return self.registry.context

    def seek(self, subject: str, group: str, to: Literal["start", "end"]) -> dict[int, QueueSeek]:
        return self._seek_to(subject, group, progress.to_start if to == "start" else progress.to_end)

    def seek_time(self, subject: str, group: str, at_ms: int) -> dict[int, QueueSeek]:
        return self._seek_to(subject, group, partial(progress.to_time, at_ms=at_ms))

    def seek_offset(self, subject: str, group: str, queue: int, offset: int) -> dict[int, QueueSeek]:
        return self._seek(subject, group, lambda parts, step: progress.seek_queue_offset(parts, offset, step), queue)

    def _seek_to(self, subject: str, group: str, aim: progress.Aim) -> dict[int, QueueSeek]:
        return self._seek(subject, group, lambda parts, step: progress.seek_queue(parts, aim, step))

    def _seek(self, subject: str, group: str, seek: SeekQueue, queue: int | None = None) -> dict[int, QueueSeek]:
        # A cached subject may lack the part of a queue that was added a moment ago.
        owner = self.registry.current_subject(subject)
        member = self.registry.group(owner, group)
        if queue is not None and queue >= owner.queues:
            raise Rejected("field-invalid", no_queue(subject, queue, owner.queues), field="queue")
        members = consumer_groups(self.registry, owner, member) if member.broadcast else [member]
        positions: dict[int, QueueSeek] = {}
        for consumer in members:
            try:
                moved = self._seek_group(owner, consumer, seek, queue)
            except NotFound:
                if not member.broadcast:
                    raise
                continue  # the consumer is forgotten in this moment
            positions = {
                number: moved_queue.beside(positions.get(number, QueueSeek(0))) for number, moved_queue in moved.items()
            }
        if not self.dry_run:
            self.context.wakeups.announce(subject, group)
        return positions

    def _seek_group(self, owner: Subject, member: Group, seek: SeekQueue, queue: int | None) -> dict[int, QueueSeek]:
        # Without the retry log: a message that failed is retried, wherever the group goes.
        logs = pull_logs(self.context, owner, member)[1:]
        numbers = range(owner.queues) if queue is None else [queue]
        outcome = "messages there cannot be counted" if self.dry_run else "the group was not moved"
        unopened(owner, logs, numbers).check(outcome)
        parts = {number: [log for log in logs if log.queue == number] for number in numbers}
        if self.dry_run:
            return {number: _counted(logs, seek) for number, logs in parts.items()}
        began_ms = self.registry.begin_seek(owner, member)
        moved = {number: QueueSeek(seek(logs, progress.move)) for number, logs in parts.items()}
        # After the rows: a waiting pull that sees the new count looks at all queues again.
        self.registry.end_seek(owner, member, began_ms)
        return moved


def offsets(positions: dict[int, QueueSeek]) -> dict[int, int]:
    """Returns the offset of the next message, by queue."""
    return {queue: position.offset for queue, position in positions.items()}


def _counted(parts: list[PullLog], seek: SeekQueue) -> QueueSeek:
    """Returns what the seek would do in one queue."""
    shifts: list[int] = []
    offset = seek(parts, lambda log, target: shifts.append(progress.shift(log, target)))
    return QueueSeek(offset, sum(shift for shift in shifts if shift > 0), -sum(shift for shift in shifts if shift < 0))


def unopened(subject: Subject, logs: Sequence[PullLog], queues: Iterable[int]) -> Outages:
    """Returns the outages that keep ``logs`` from having a log of each part of these queues."""
    opened = {log.source.name for log in logs}
    sources = {log for queue in queues for _, log in subject.parts(queue)}
    outages = Outages()
    outages.add(sources - opened)
    return outages
