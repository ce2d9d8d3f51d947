"""Remembers what a process knows from its last sweeps. All of it is only a hint: a new process looks at everything."""

from dataclasses import dataclass, field

from hourwheel.groups.open_ends import OpenEnds
from hourwheel.registry.removed_names import RemovedNames, drop_keys, drop_logs
from hourwheel.sweep.decisions import LastLook
from hourwheel.sweep.shares import ShareMemory


@dataclass(frozen=True)
class SweepMemory:
    looks: dict[str, LastLook] = field(default_factory=dict)
    """The last look at each subject."""
    ends: OpenEnds = field(default_factory=OpenEnds)
    done_ms: dict[str, int] = field(default_factory=dict)
    """When each task was done last that is in no hurry."""
    extended_ms: dict[str, int] = field(default_factory=dict)
    """When the last pass was complete that extended the expiry of a log's unarchived rows."""

    live_ms: dict[str, int] = field(default_factory=dict)
    """The time before which a log has nothing to trim, as its first row is live until then."""
    turns: dict[str, str] = field(default_factory=dict)
    """The last name of each list that had a turn, where the time of a task ended before its list."""

    shares: ShareMemory = field(default_factory=ShareMemory)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the entries of deleted subjects and groups."""
        drop_keys(self.looks, [subject for subject in list(self.looks) if deleted.has_subject(subject)])
        drop_logs(deleted, self.extended_ms, self.live_ms)
        self.ends.drop(deleted)
