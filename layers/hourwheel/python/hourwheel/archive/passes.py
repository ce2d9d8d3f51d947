"""A pass of the archiver through all logs, as a value: each log that was read leads to the next value. Reads and writes
nothing.

A pass takes as many commits as it needs. A commit that is full ends at a log; the next commit goes on behind that log.
"""

from dataclasses import dataclass, replace

import msgspec

from hourwheel.retention.watermarks import ArchiveHead

MANIFEST_EVERY_MS = 3_600_000
"""A manifest is written at least this often, even without rows: readers of the archive learn from it that nothing new
is there."""


@dataclass(frozen=True)
class LogRead:
    """How far a log was read. ``complete``: up to its end; ``commit_full``: as far as the commit had room."""

    complete: bool
    commit_full: bool = False


@dataclass(frozen=True)
class Pass:
    """``complete``: no row was left out so far. ``first`` names the log behind which this commit began, ``last`` the
    one behind which the next would. ``commit_full``: logs are left for the next commit. ``over``: this one reads no
    more."""

    began_ms: int
    complete: bool
    first: str = ""
    last: str = ""
    commit_full: bool = False
    over: bool = False

    @classmethod
    def of(cls, head: ArchiveHead, now_ms: int) -> "Pass":
        """Returns the pass in the middle of which the head is, or one that begins now."""
        return cls(head.pass_ms or now_ms, head.complete, first=head.resume, last=head.resume)

    @property
    def complete_ms(self) -> int:
        """Rows that were stored before this time are archived; 0 where the pass has not ended, or left a row out."""
        return self.began_ms if self.complete and not self.commit_full else 0

    def after(self, log: str, read: LogRead, *, stop: bool, at_end: bool) -> "Pass":
        """Returns the pass after a log was read. ``stop``: the commit takes no further log; ``at_end``: no log is
        left."""
        if read.commit_full and self.last != self.first:
            # The next commit begins with the rest of this log.
            return replace(self, commit_full=True, over=True)
        complete = self.complete and read.complete and not read.commit_full
        if read.commit_full or stop:
            # The other logs have their turn before the rest of this log.
            return replace(self, complete=complete, last=log, commit_full=not at_end, over=True)
        return replace(self, complete=complete, last=log)

    def head(self, head: ArchiveHead) -> ArchiveHead:
        """Returns the head with the log behind which the next commit goes on."""
        return msgspec.structs.replace(
            head,
            resume=self.last if self.commit_full else "",
            pass_ms=self.began_ms if self.commit_full else 0,
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
