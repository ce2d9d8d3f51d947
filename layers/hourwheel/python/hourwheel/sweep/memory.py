"""Remembers what a process knows from its last sweeps. All of it is only a hint: a new process looks at everything."""

from dataclasses import dataclass, field

from hourwheel.groups.open_ends import OpenEnds
from hourwheel.registry.removed_names import RemovedNames, drop_keys, drop_logs
from hourwheel.sweep.decisions import LastLook


@dataclass(frozen=True)
class SweepMemory:
    looks: dict[str, LastLook] = field(default_factory=dict)
    """The last look at each subject."""
    ends: OpenEnds = field(default_factory=OpenEnds)
    done_ms: dict[str, int] = field(default_factory=dict)
    """When each task was done last that is in no hurry."""
    extended_ms: dict[str, int] = field(default_factory=dict)
    """When the last pass was complete that extended the expiry of a log's unarchived rows."""

    turns: dict[str, str] = field(default_factory=dict)
    """The last name of each list that had a turn, where the time of a task ended before its list."""

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the entries of deleted subjects and groups."""
        drop_keys(self.looks, [subject for subject in list(self.looks) if deleted.has_subject(subject)])
        drop_logs(deleted, self.extended_ms)
        self.ends.drop(deleted)
