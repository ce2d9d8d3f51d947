"""Judges how pulls share between retries and new messages: while both wait, each comes in its share of the pulls.

Chance decides about a single pull, so the judgement is about many of them in a row.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hourwheel.model.fields import DEFAULT_RETRY_PERCENT
from tests.simulation import filters
from tests.simulation.facts import LogName
from tests.simulation.orders import OrderedHistory
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit
    from tests.simulation.pulls import PullHistory

_PULLS = 30
"""Where chance gives each of them half of the pulls, none of 30 comes once in a thousand million times. Most pulls of
several messages bring both."""

_MOST_STALE = 0.3
"""Where more reads miss the last change, a pull may not see the retry that waits. Where all of them do, no pull sees it
until another message comes to the log."""


@dataclass
class Shares:
    audit: "StoreAudit"
    _judged: dict[str, list[tuple[bool, bool]]] = field(default_factory=dict)
    """By the prefix of a group's pull logs: whether each of its last pulls brought retries, and new messages."""

    def pulled(self, verb: Verb) -> None:
        """Checks a pull that beside its messages left a retry and a new message, both stored before it began."""
        histories = [self.audit.pulls[partition] for partition, _ in verb.claims]
        if not histories or any(isinstance(history, OrderedHistory) for history in histories):
            return
        kinds = [LogName.parse(history.source).kind for history in histories]
        name, member = LogName.parse(histories[0].source), histories[0].member
        head = f"{member}@{name.subject}~{name.generation}/"
        logs = [other for partition, other in self.audit.pulls.items() if partition.startswith(head)]
        retries = [log for log in logs if LogName.parse(log.source).kind == "retry"]
        queues = [log for log in logs if log not in retries]
        if self.audit.world.faults.stale > _MOST_STALE or not self._is_judged(name, member, queues):
            return
        if not (any(self._waits(log, verb) for log in retries) and all(self._waits(log, verb) for log in queues)):
            return
        judged = self._judged.setdefault(head, [])
        judged.append(("retry" in kinds, "queue" in kinds))
        del judged[:-_PULLS]
        for kind, brought in zip(("retries", "new messages"), zip(*judged, strict=True), strict=True):
            if len(judged) == _PULLS and not any(brought):
                raise Violation("1", f"{_PULLS} pulls of {head} brought no {kind}, while both kinds waited")

    def _is_judged(self, name: LogName, member: str, queues: list["PullHistory"]) -> bool:
        """Returns whether a group shares by the usual percentage, and each of its queues is one log that it pulled."""
        subject = self.audit.subjects.get(name.subject)
        group = self.audit.groups.get((name.subject, name.generation, member))
        if not queues or subject is None or group is None or subject.generation != name.generation or subject.routes:
            return False
        if group.retry_percent != DEFAULT_RETRY_PERCENT or filters.filters_of(self.audit, queues[0].source, member) != [
            None
        ]:
            return False
        return len(queues) == subject.queues

    def _waits(self, log: "PullHistory", verb: Verb) -> bool:
        """Returns whether a message at the end of the claims was stored before the verb began."""
        fact = self.audit.rows(log.source).get(log.end.row_no)
        return fact is not None and fact.at < verb.at and not fact.row.filler and fact.row.live(self.audit.soon)
