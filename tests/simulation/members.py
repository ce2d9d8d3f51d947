"""Judges the consumers of broadcast groups, and the time at which one may be forgotten."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hourwheel.model.groups import Group
from hourwheel.pull_log.records import OPEN
from hourwheel.registry.broadcast import with_settings
from tests.simulation.facts import LogName, shared_member
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit


@dataclass
class Members:
    audit: "StoreAudit"
    pulled_ms: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """The time at which the last answered pull of each consumer began, by subject, broadcast group and consumer."""

    def pulled(self, subject: str, group: str, consumer: str, verb: Verb) -> None:
        position = (subject, group, consumer)
        self.pulled_ms[position] = max(verb.began_ms, self.pulled_ms.get(position, 0))

    def stored(self, verb: Verb, group: Group) -> Group:
        """Judges the record of a consumer's group, and returns it with the settings of its broadcast group."""
        before = self.audit.groups.get((group.subject, group.subject_generation, group.member))
        parent = self._parent(group.subject, group.subject_generation, group.member)
        if parent is None:
            return group
        if group.deleted and verb.name == "sweep" and not parent.deleted and not (before is None or before.deleted):
            self._check_forgotten(verb, group, parent)
        return with_settings(group, parent)

    def changed(self, parent: Group) -> None:
        """Gives the consumers of a broadcast group its new settings."""
        for position, group in list(self.audit.groups.items()):
            if group.consumer and (*position[:2], shared_member(group.member)) == (
                parent.subject,
                parent.subject_generation,
                parent.member,
            ):
                self.audit.groups[position] = with_settings(group, parent)

    def orphaned(self, subject: str, generation: int, member: str) -> bool:
        """Returns whether a member is a consumer of a broadcast group that was deleted."""
        parent = self._parent(subject, generation, member)
        return parent is not None and parent.deleted

    def _parent(self, subject: str, generation: int, member: str) -> Group | None:
        shared = shared_member(member)
        return None if shared == member else self.audit.groups.get((subject, generation, shared))

    def _check_forgotten(self, verb: Verb, group: Group, parent: Group) -> None:
        """Checks that a consumer that is forgotten has no lease, and was away for the time that the group sets."""
        where = f"consumer {group.consumer} of {parent.name} in {group.subject}"
        for partition, history in self.audit.pulls.items():
            source = LogName.parse(history.source)
            address = (history.member, source.subject, source.generation)
            if address != (group.member, group.subject, group.subject_generation) or self.audit.gone(history.source):
                continue
            # The sweeper has read each lease that was there when it began.
            leased = [row for row in history.open if history.pulls[row].at < verb.at]
            if any(history.pulls[row].value.state == OPEN for row in leased):
                raise Violation("4", f"{where} is forgotten while it holds the rows {leased} of {partition}")
        world = self.audit.world
        last_ms = self.pulled_ms.get((group.subject, parent.name, group.consumer))
        if last_ms is not None:
            away_ms = world.now_ms - last_ms
            if away_ms < 1_000 * parent.consumer_expires_seconds - 2 * world.plan.skew_ms:
                raise Violation("1", f"{where} is forgotten, it was away for {away_ms} ms")
