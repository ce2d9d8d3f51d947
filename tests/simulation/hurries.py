"""Judges early retries: all messages of the group that waited are moved, and none of another group."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.buckets import BucketHistory
from tests.simulation.facts import Pick, shared_member
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit


@dataclass
class Hurries:
    """The early retries of a run. ``asked``: the groups for which an operator has requested one."""

    audit: "StoreAudit"
    asked: set[tuple[str, str]] = field(default_factory=set)

    def begins(self, subject: str, group: str) -> set[tuple[str, Pick]]:
        """Notes a request, and returns the retries of the group that wait and that nobody has moved yet."""
        self.asked.add((subject, group))
        return self._waiting(subject, group)

    def ended(self, verb: Verb, waited: set[tuple[str, Pick]], *, done: bool) -> None:
        """Judges a request: it has moved no retry of a group that nobody named (11), and where it is answered as
        complete none of the group's is left (4)."""
        subject, group = verb.details["subject"], verb.details["group"]
        for name, history in self.audit.buckets.items():
            for pick in history.changes:
                plan = history.plan(pick)
                owner = plan.member and (plan.subject, shared_member(plan.member).partition("~")[0])
                if owner and owner not in self.asked:
                    raise Violation("11", f"the retry {pick} of {owner} in bucket {name} is moved by another group's")
        left = waited & self._waiting(subject, group)
        if done and left:
            raise Violation("4", f"all retries of {group} are answered to be moved, {sorted(left)} are left")

    def _waiting(self, subject: str, group: str) -> set[tuple[str, Pick]]:
        return {
            (name, pick)
            for name, history in self.audit.buckets.items()
            if history.open
            for pick in history.waiting()
            if pick not in history.changes and self._is_of(history, pick, subject, group)
        }

    def _is_of(self, history: BucketHistory, pick: Pick, subject: str, group: str) -> bool:
        """Returns whether the message is a retry of the group that is not due by any clock. A retry of a deleted group,
        or of the group before it with its name, is none."""
        plan = history.plan(pick)
        if plan.member is None or plan.due_ms(pick[1]) <= self.audit.soon:
            return False
        named = plan.subject == subject and shared_member(plan.member).partition("~")[0] == group
        return named and not self.audit.gone(f"{plan.subject}~{plan.generation}/0", plan.member)
