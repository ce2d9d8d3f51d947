"""Decides from which parts of its queues an ordered group may claim. A part has its turn when the group has settled all
messages of the parts before it.

Before a part come the earlier parts of its queue, and all parts of an earlier era: with another number of queues a
key's messages may have gone to another queue.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.logs.log import GRACE_MS
from hourwheel.model.groups import Group
from hourwheel.model.routes import Mapping
from hourwheel.model.subjects import Subject
from hourwheel.ordered.claims import settled_rows
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog


def in_turn(
    context: Context, key_states: KeyStateCache, subject: Subject, group: Group, logs: Sequence[PullLog]
) -> Sequence[PullLog]:
    """Returns those of the logs that the group may claim from now. Reads only where a queue has several parts."""
    if not (group.ordered and subject.routes):
        return logs
    parts = _Parts(context, key_states, subject, group)
    return [log for log in logs if log.queue is None or parts.begun(log.queue, log.mapping)]


@dataclass
class _Parts:
    context: Context
    key_states: KeyStateCache
    subject: Subject
    group: Group
    _done: dict[str, bool] = field(default_factory=dict)
    _logs: dict[str, PullLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._logs = {log.source.name: log for log in pull_logs(self.context, self.subject, self.group)}

    def begun(self, queue: int, mapping: Mapping) -> bool:
        """Returns whether all parts before this one are done."""
        return all(
            self._is_done(earlier, name)
            for other in range(self.subject.queues)
            for earlier, name in self.subject.parts(other)
            if earlier.era < mapping.era or (other == queue and earlier.epoch < mapping.epoch)
        )

    def _is_done(self, mapping: Mapping, name: str) -> bool:
        if name not in self._done:
            log = self._logs.get(name)
            # A part in a cell that is out of reach may have messages.
            self._done[name] = log is not None and mapping.end is not None and self._read(log)
        return self._done[name]

    def _read(self, log: PullLog) -> bool:
        if self.key_states.known_done(log):
            return True
        with suppress(Unavailable):
            rows = settled_rows(self.key_states, log)
            if rows is not None and rows >= log.mapping.rows:
                self.key_states.remember_done(log)
                return True
            if rows is not None:
                self._fill_end(log)
        return False

    def _fill_end(self, log: PullLog) -> None:
        """Fills the rows at the end of a sealed part that were given out and never stored, once this process has missed
        them for the grace time. In a log that takes messages a later row tells when a writer is overdue; here none
        follows, and all later parts would wait for the sweeper."""
        now_ms = log.context.clock.now_ms()
        if self.key_states.missed_ms(log) >= GRACE_MS:
            log.source.fill_end(log.mapping.rows, now_ms + self.subject.retention_ms)
