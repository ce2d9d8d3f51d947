"""Moves groups to another position in their queues."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from hourwheel.context import Context
from hourwheel.errors import CellUnavailable, NotFound, Rejected
from hourwheel.log_names import cell_of
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.queueing import progress
from hourwheel.queueing.pull_log import PullLog, pull_logs
from hourwheel.registry.broadcast import consumer_groups
from hourwheel.registry.registry import Registry
from hourwheel.words import counted


@dataclass(frozen=True)
class Seeks:
    """Moves groups; a broadcast group with each of its consumers. Every method returns the offset of the group's next
    message, by queue. Raises ``CellUnavailable``, and moves nothing, while a cell with a queue cannot be reached."""

    registry: Registry

    @property
    def context(self) -> Context:
        return self.registry.context

    def seek(self, subject: str, group: str, to: Literal["start", "end"]) -> dict[int, int]:
        move = progress.seek_start if to == "start" else progress.seek_end
        return self._seek(subject, group, lambda parts: progress.seek_queue(parts, move))

    def seek_time(self, subject: str, group: str, at_ms: int) -> dict[int, int]:
        move = partial(progress.seek_time, at_ms=at_ms)
        return self._seek(subject, group, lambda parts: progress.seek_queue(parts, move))

    def seek_offset(self, subject: str, group: str, queue: int, offset: int) -> dict[int, int]:
        return self._seek(subject, group, lambda parts: progress.seek_queue_offset(parts, offset), queue)

    def _seek(
        self, subject: str, group: str, move: Callable[[list[PullLog]], int], queue: int | None = None
    ) -> dict[int, int]:
        # A cached subject may lack the part of a queue that was added a moment ago.
        self.registry.forget(subject)
        owner = self.registry.subject(subject)
        member = self.registry.group(owner, group)
        if queue is not None and queue >= owner.queues:
            detail = f"subject {subject!r} has {counted(owner.queues, 'queue')}, numbered from 0"
            raise Rejected("field-invalid", detail, field="queue")
        if member.broadcast:
            members = consumer_groups(self.registry, owner, member)
            positions: dict[int, int] = {}
            for each in members:
                with suppress(NotFound):  # the consumer is forgotten in this moment
                    positions = self._seek_group(owner, each, move, queue)
        else:
            positions = self._seek_group(owner, member, move, queue)
        self.context.wakeups.announce(subject, group)
        return positions

    def _seek_group(
        self, owner: Subject, member: Group, move: Callable[[list[PullLog]], int], queue: int | None
    ) -> dict[int, int]:
        logs = pull_logs(self.context, owner, member)[1:]
        if out := cells_out(owner, logs):
            raise CellUnavailable(f"cell {', '.join(out)} cannot be reached: seek again once it can")
        numbers = range(owner.queues) if queue is None else [queue]
        began_ms = self.registry.begin_seek(owner, member)
        moved = {number: move([log for log in logs if log.queue == number]) for number in numbers}
        # After the rows: a waiting pull that sees the new count looks at all queues again.
        self.registry.end_seek(owner, member, began_ms)
        return moved


def cells_out(subject: Subject, logs: Sequence[PullLog]) -> list[str]:
    """Returns the cells of which no log could be opened."""
    opened = {log.source.name for log in logs}
    return sorted({cell_of(log) for log in subject.queue_logs() if log not in opened})
