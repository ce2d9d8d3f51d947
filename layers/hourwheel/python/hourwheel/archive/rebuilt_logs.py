"""Determines from the summary of an archive which logs a rebuild restores."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from hourwheel.archive.summary import ArchiveSummary
from hourwheel.context import Context
from hourwheel.model.groups import Group
from hourwheel.model.log_names import LogKind, LogName, pull_log, source_of
from hourwheel.model.routes import Mapping
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog


@dataclass(frozen=True)
class RebuiltLogs:
    """The logs of the subjects and groups that are alive in the archive."""

    context: Context
    summary: ArchiveSummary
    began_ms: int
    """The time at which the rebuild began: buckets that were over then are not restored."""

    @cached_property
    def members(self) -> dict[str, tuple[Subject, Group]]:
        """The subject and the group of each pull log, by its partition, without deleted groups."""
        return {
            pull_log(group.member, log): (subject, group)
            for subject, groups in self.summary.alive
            for group in groups
            for log in (group.retry_log, *subject.queue_logs())
        }

    @cached_property
    def pull_logs(self) -> dict[str, PullLog]:
        """The pull logs of all groups, by partition."""
        alive = [(subject, group) for subject, groups in self.summary.alive for group in groups]
        return {log.partition: log for subject, group in alive for log in pull_logs(self.context, subject, group)}

    @cached_property
    def buckets(self) -> set[str]:
        return self.summary.open_buckets(self.began_ms)

    @cached_property
    def queues(self) -> set[str]:
        """The logs that take new messages."""
        return {subject.log(queue) for subject, _ in self.summary.alive for queue in range(subject.queues)}

    @cached_property
    def starts(self) -> dict[str, int]:
        """The first offset of each part of a queue."""
        return {log: mapping.start for mapping, log in self._parts()}

    @cached_property
    def closed(self) -> dict[str, int]:
        """The exact end of each closed part of a queue."""
        return {log: mapping.end for mapping, log in self._parts() if mapping.end is not None}

    def _parts(self) -> Iterator[tuple[Mapping, str]]:
        for subject, _ in self.summary.alive:
            for queue in range(subject.queues):
                yield from subject.parts(queue)

    @cached_property
    def restored(self) -> set[str]:
        """The logs of messages that are restored."""
        groups = [group for _, groups in self.summary.alive for group in groups]
        return {
            *(log for subject, _ in self.summary.alive for log in subject.queue_logs()),
            *(log for group in groups for log in (group.retry_log, group.dead_log)),
            *(log for log in self.summary.ends if LogName.parse(log).kind is LogKind.ORPHAN),
            *(str(LogName.of_schedule(name)) for name in self.buckets),
        }

    @cached_property
    def needed(self) -> set[tuple[str, int]]:
        """The rows from which messages are handed over again, even where the row's own retention is over."""
        return {
            (source_of(handover.source), row_no) for handover in self.summary.pulled for row_no, _ in handover.picks
        }
