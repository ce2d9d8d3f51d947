"""Represents a pass of the archiver through all logs as a value; each log that was read leads to the next value. Reads
and writes nothing.

A pass takes as many commits as it needs. A commit that is full ends at a log; the next commit goes on behind that log.
"""

from dataclasses import dataclass, replace
from enum import Enum

import msgspec

from hourwheel.retention.watermarks import ArchiveHead

MANIFEST_EVERY_MS = 3_600_000
"""A manifest is written at least this often, even without rows: readers of the archive learn from it that nothing new
is there."""


class LogRead(Enum):
    """How far a log was read."""

    TO_ITS_END = "to its end"
    ROWS_LEFT = "rows are left: they cannot be read yet, or are more than one commit takes of a log"
    COMMIT_FULL = "rows are left: the commit has no room for them"


@dataclass(frozen=True)
class Pass:
    """A pass, as far as it has come. ``complete``: no row was left out so far. ``first`` names the log behind which
    this commit began, ``last`` the one behind which the next commit would begin. ``commit_full``: this commit reads no
    more, and logs are left for the next."""

    began_ms: int
    complete: bool
    first: str = ""
    last: str = ""
    commit_full: bool = False

    @classmethod
    def of(cls, head: ArchiveHead, now_ms: int) -> "Pass":
        """Returns the pass in the middle of which the head is, or one that begins now."""
        return cls(head.pass_ms or now_ms, head.complete, first=head.resume, last=head.resume)

    @property
    def complete_ms(self) -> int:
        """The time before which every stored row is archived; 0 where the pass has not ended, or left a row out."""
        return self.began_ms if self.complete and not self.commit_full else 0

    def after(self, log: str, read: LogRead) -> "Pass":
        """Returns the pass after a log was read, behind which others are left."""
        if read is not LogRead.COMMIT_FULL:
            return replace(self, complete=self.complete and read is LogRead.TO_ITS_END, last=log)
        if self.last != self.first:
            # The next commit begins with the rest of this log.
            return replace(self, commit_full=True)
        # The other logs have their turn before the rest of this log.
        return replace(self, complete=False, last=log, commit_full=True)

    def after_last(self, log: str, read: LogRead) -> "Pass":
        """Returns the pass after its last log was read. A last log that fills a commit by itself ends the pass."""
        after = self.after(log, read)
        return replace(after, commit_full=False) if after.last == log else after

    def stopped(self) -> "Pass":
        """Returns the pass after this commit, which has no room for the logs that are left."""
        return replace(self, commit_full=True)

    def head(self, head: ArchiveHead) -> ArchiveHead:
        """Returns the head with the log behind which the next commit goes on."""
        return msgspec.structs.replace(
            head,
            resume=self.last if self.commit_full else "",
            pass_ms=self.began_ms if self.commit_full else 0,
            # The pass ends with a commit that is not full, and the next pass has left nothing out yet.
            complete=self.complete or not self.commit_full,
        )

    def noted(self, head: ArchiveHead) -> ArchiveHead:
        """Returns the head after a pass, or a part of a pass, that found nothing to archive."""
        return msgspec.structs.replace(self.head(head), complete_ms=max(head.complete_ms, self.complete_ms))

    def needs_manifest(self, head: ArchiveHead, *, has_rows: bool) -> bool:
        """Returns whether to write a manifest: there is something to archive, or the last manifest is old and the
        archive is complete."""
        return has_rows or self.complete_ms - head.last_manifest_ms >= MANIFEST_EVERY_MS


def commit_is_full(size: int, limit_bytes: int, now_ms: int, stop_ms: int) -> bool:
    return size >= limit_bytes or now_ms >= stop_ms
