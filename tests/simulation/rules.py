"""Checks rules: attempts, delays, leases, expiry and watermarks by the plan of a run, not by the library."""

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from hourwheel.buckets.lease import WheelOwner
from hourwheel.delay.outgoing_batches import AGAIN, DUE, ORPHANED
from hourwheel.handover.copies import ATTEMPTS, REDRIVE, REJECTED, RELEASED, RETRY
from hourwheel.handover.handover import Transfer
from hourwheel.logs.suspects import suspects_of
from hourwheel.model.fields import DEAD_RETENTION_MS, DEFAULT_MAX_ATTEMPTS, DEFAULT_RETENTION_SECONDS
from hourwheel.model.groups import Group, RetryPolicy
from hourwheel.model.log_names import HOME, SCHEDULE_PREFIX, cell_of
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Record
from hourwheel.pull_log.records import PullRow
from tests.simulation.facts import LogName, RowFact, shared_member
from tests.simulation.plan import Plan
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit
    from tests.simulation.pulls import PullHistory

_LONG_MS = 600_000
_SEEN_MS = 1_000
"""Other actors may run between the read of a record and the moment at which it is cached."""
_PAUSED_MS = 240_000
"""A process may be paused between its look at the clock and its reservation."""


@dataclass(frozen=True)
class Rules:
    audit: "StoreAudit"

    @property
    def plan(self) -> Plan:
        return self.audit.world.plan

    def policy(self, name: LogName, member: str) -> RetryPolicy:
        """Returns the delays after which messages of the group are retried."""
        own = self.plan.own_retry
        return (
            own
            if own is not None and self._drawn(name) and shared_member(member) == f"{self.plan.groups[0]}~1"
            else self.plan.retry
        )

    def check_attempts(self, where: str, name: LogName, member: str, kind: str, attempt: int) -> None:
        """Checks that a message becomes a dead letter after its last attempt, not sooner."""
        if "attempts" in self.plan.moves or kind not in (RETRY, ATTEMPTS):
            return
        drawn = self._drawn(name) and shared_member(member) in {f"{group}~1" for group in self.plan.groups}
        most = self.plan.max_attempts if drawn else DEFAULT_MAX_ATTEMPTS
        if (attempt >= most) != (kind == ATTEMPTS):
            raise Violation("4", f"{where}: after attempt {attempt} of {most} a message goes to {kind}")

    def check_claim(self, where: str, verb: Verb, value: PullRow) -> None:
        """Checks that a lease is as long as the consumer asked for."""
        seconds = verb.details.get("lease_seconds")
        if seconds is not None and value.lease_until_ms - value.claimed_ms != 1_000 * seconds:
            raise Violation("4", f"{where} is leased until {value.lease_until_ms}, {seconds} s were asked for")
        if value.claimed_ms > self.audit.soon:
            raise Violation("4", f"{where} is dated {value.claimed_ms}, later than any clock")

    def check_paused(self, where: str, verb: Verb, name: LogName, member: str) -> None:
        """Checks that a pull that begins once every process knows of a pause claims nothing."""
        if self.plan.faults.pause:
            return  # a process may be paused between the look at a record and the claim
        known_ms = 1_000 * self.plan.registry_seconds + 2 * self.plan.skew_ms + _SEEN_MS
        for position in ((name.subject, name.generation, shared_member(member)), (name.subject, name.generation, "")):
            since_ms = self.audit.paused_ms.get(position)
            if since_ms is not None and verb.began_ms > since_ms + known_ms:
                raise Violation("4", f"{where} is claimed, paused for {verb.began_ms - since_ms} ms")

    def check_open(self, verb: Verb, subject: str, generation: int) -> None:
        """Checks that a batch that is sent once every process knows that its subject is read-only is not stored. A
        repeated batch with an idempotency key is carried out: its first request may have stored a part."""
        since_ms = self.audit.closed_ms.get((subject, generation))
        if since_ms is None or self.plan.faults.pause or verb.details.get("key") is not None:
            return
        known_ms = 1_000 * self.plan.registry_seconds + 2 * self.plan.skew_ms + _SEEN_MS
        if verb.began_ms > since_ms + known_ms:
            raise Violation("2", f"a batch came into {subject}, which is read-only for {verb.began_ms - since_ms} ms")

    def check_rate(self, history: "PullHistory", row: int, verb: Verb) -> None:
        """Checks that a claim leaves the group within its rate: a second's worth at once. Claims of other logs since
        the pull began may have been missed, unless one transaction compares them."""
        group = self._limited(history)
        if group is None or not group.messages_per_second or self.plan.skew_ms:
            return
        claims = [
            (other.pulls[number].value.claimed_ms, other.pulls[number].value.size)
            for other in self._of_group(history)
            for number in other.pulls
            if self._counted(history, row, other, number, verb)
        ]
        total, now_ms = 0, history.pulls[row].value.claimed_ms
        for at_ms, size in sorted(claims, reverse=True):
            total += size
            if total > group.messages_per_second * (1 + (now_ms - at_ms) / 1_000) + 1e-6:
                raise Violation(
                    "4", f"{history.partition}: pull row {row} is the {total}th message in {now_ms - at_ms} ms"
                )

    def check_in_flight(self, history: "PullHistory", row: int, verb: Verb) -> None:
        """Checks that a claim leaves the group within its limit. Claims of other logs since the pull began may have
        been missed, unless one transaction compares them."""
        group = self._limited(history)
        if group is None or not group.max_in_flight:
            return
        leased = sum(
            other.pulls[number].leased
            for other in self._of_group(history)
            for number in other.open
            if self._counted(history, row, other, number, verb)
        )
        if leased > group.max_in_flight:
            raise Violation("4", f"{history.partition}: with pull row {row}, {leased} messages are leased at once")

    def _limited(self, history: "PullHistory") -> Group | None:
        """Returns the group whose limits hold for a claim; None once the group was deleted. A pull that still knows it
        claims in logs that are erased, whose settlements are not judged: nothing tells how much is leased there."""
        if self.audit.gone(history.source, history.member):
            return None
        name = LogName.parse(history.source)
        return self.audit.groups.get((name.subject, name.generation, history.member))

    def _of_group(self, history: "PullHistory") -> "list[PullHistory]":
        """Returns the pull logs of the group: of its queues, in whatever cell, and of its retries."""
        own = LogName.parse(history.source)
        head = f"{own.subject}~{own.generation}/"
        return [
            other
            for other in self.audit.pulls.values()
            if other.member == history.member and other.source.rpartition(":")[2].startswith(head)
        ]

    def _counted(self, history: "PullHistory", row: int, other: "PullHistory", number: int, verb: Verb) -> bool:
        """Returns whether the claim that is this row has to count that row of another log: the bound that the limits
        promise. The logs of one cell are compared in its transaction; of others count the rows that were there when
        the pull began, and those of the pull itself."""
        cells = cell_of(history.source), cell_of(other.source)
        if other is history or (self.plan.transactional and cells[0] == cells[1]):
            return True
        if cells[1] not in (HOME, cells[0]) and "outage" in self.plan.moves:
            return False  # the cell may be out of reach, and the process may not have seen its leases
        # Threads of a pusher claim at one time, as processes do.
        if (other.partition, number) in verb.claims and not (verb.name == "push" and self.plan.concurrency > 1):
            return True
        return other.pulls[number].at <= verb.at

    def check_lease(self, where: str, verb: Verb, before: PullRow, value: PullRow) -> None:
        """Checks that a lease only gets longer, by at most the time that the consumer asked for."""
        if value.lease_until_ms < before.lease_until_ms:
            raise Violation("4", f"{where}: its lease became shorter")
        seconds = verb.details.get("extend_seconds")
        latest_ms = max(before.lease_until_ms, self.audit.soon + 1_000 * (seconds or 0))
        if seconds is not None and value.lease_until_ms > latest_ms:
            raise Violation("4", f"{where}: its lease became longer by more than {seconds} s")

    def check_row(self, where: str, name: LogName, fact: RowFact) -> None:
        """Checks that a row of a queue is kept as long as its subject says, and that one of a retry log names its
        suspects: a claim reads no messages for them."""
        keep_ms = self._kept_ms(name)
        row = fact.row
        if name.kind == "queue" and not row.filler and keep_ms and row.expires_ms != row.at_ms + keep_ms:
            raise Violation("12", f"{where} is kept for {row.expires_ms - row.at_ms} ms, its subject says {keep_ms}")
        suspects = [index for index, message in enumerate(fact.messages) if message.suspect]
        if name.kind == "retry" and fact.messages and [*suspects_of(row)] != suspects:
            raise Violation("4", f"{where} names the suspects {[*suspects_of(row)]}, it has {suspects}")

    def check_kept(self, transfer: Transfer) -> None:
        """Checks that a row handed over is kept as long as its kind says, from the hand-over on."""
        if not transfer.log or transfer.log.startswith(SCHEDULE_PREFIX):
            return
        keep_ms = 0
        if transfer.kind in (ATTEMPTS, REJECTED, ORPHANED):
            keep_ms = DEAD_RETENTION_MS
        elif transfer.kind in (RETRY, RELEASED, REDRIVE, DUE, AGAIN):
            keep_ms = self._kept_ms(LogName.parse(transfer.log))
        kept_ms = transfer.expires_ms - transfer.at_ms
        paused_ms = max(_PAUSED_MS, 3 * self.plan.longest_pause_ms)
        tolerance_ms = paused_ms + 2 * self.plan.skew_ms
        if keep_ms > _LONG_MS and not abs(kept_ms - keep_ms) <= tolerance_ms:
            raise Violation("12", f"{transfer.kind} to {transfer.log}: kept for {kept_ms} ms instead of {keep_ms}")

    def check_trimmed(self, log: str, before: int, below: int) -> None:
        """Checks that a trim mark only rises, and that no row below it is still needed."""
        if self.audit.lost(log):
            return
        if below < before:
            raise Violation("12", f"the trim mark of {log} fell from {before} to {below}")
        for row in range(before, below):
            if row not in self.audit.rows(log) or not self.audit.spent(log, row):
                raise Violation("12", f"row {row} of {log} is trimmed, and is still needed")

    def check_route(self, before: Subject | None, subject: Subject) -> None:
        """Checks that offsets have no gap and no overlap, that ends are exact, and that the epoch never falls (10)."""
        if before is not None and before.generation == subject.generation and subject.epoch < before.epoch:
            raise Violation("10", f"the epoch of {subject.name} fell from {before.epoch} to {subject.epoch}")
        for queue, route in enumerate(subject.routes):
            for mapping, following in pairwise(route.mappings):
                log = subject.log_of(queue, mapping)
                totals = self.audit.totals(log)
                # An expired part may have the turn of a change that was given up, whose log was never used.
                exact = mapping.state == "expired" or (totals.numbers, totals.sealed) == (mapping.end, True)
                # Between the others a part may have expired, and been used again since.
                gap = following.start - (mapping.end or 0)
                if gap < 0 or (gap and following is route.last) or not exact:
                    raise Violation("10", f"{log} ends at {totals}, its mapping at {mapping.end}, {following} follows")
            last = subject.log_of(queue, route.last)
            if self.audit.totals(last).numbers < route.last.start:
                raise Violation("10", f"{last} is published at {route.last.start} and counts below that")

    def check_sealed(self, before: Subject | None, subject: Subject) -> None:
        """Checks that no row of a subject is handed out after the subject was erased or created again."""
        for old in (before, subject):
            if old is None or not (old.erased or old.generation < subject.generation):
                continue
            for log in old.queue_logs():
                if not self.audit.totals(log).sealed:
                    raise Violation("1", f"subject {old.name} is erased, and {log} still takes messages")

    def check_listed(self, name: str) -> None:
        """Checks that the list of subjects has each subject whose logs may hold messages."""
        subject, entries = self.audit.subjects.get(name), self.audit.listed.get(name, {})
        if subject is not None and not subject.erased and 0 not in entries.values():
            raise Violation("1", f"subject {name} is not erased, and the list has only {entries} of it")

    def check_reading(self, verb: Verb, key: Key, owner: WheelOwner) -> None:
        """Checks that an owner publishes as read only rows that it has read."""
        if verb.name != "wheel" or not owner.owner:
            return
        seen = verb.seen.get(SCHEDULE_PREFIX + key.sort, set())
        if unread := [row for row in range(owner.read_below) if row not in seen]:
            raise Violation("8", f"the owner of {key.sort} publishes {owner.read_below}, it never read rows {unread}")

    def check_rises(self, key: Key, before: Record | None, record: Record) -> None:
        """Checks that a watermark of the archive only rises."""
        was = 0 if before is None else msgspec.msgpack.decode(before.value, type=int)
        value = msgspec.msgpack.decode(record.value, type=int)
        if value < was:
            raise Violation("9", f"the archive's watermark of {key.sort} fell from {was} to {value}")

    def _drawn(self, name: LogName) -> bool:
        """Returns whether the plan created the subject, and no actor has created it again."""
        return name.generation == 1 and name.subject in self.plan.subjects

    def _kept_ms(self, name: LogName) -> int:
        """Returns the retention of the subject in milliseconds; 0 when it is not certain."""
        if "retention" in self.plan.moves:
            return 0
        return 1_000 * (self.plan.retention_seconds if self._drawn(name) else DEFAULT_RETENTION_SECONDS)

    def check_begins_at_the_end(self, verb: Verb, group: Group) -> None:
        """Checks that a new group that starts at the latest message begins behind all earlier ones."""
        subject = self.audit.subjects[group.subject]
        for queue in range(subject.queues):
            origin = group.origins[queue] if queue < len(group.origins) else 0
            # A part of a later epoch was not there when the group was made.
            last = [log for mapping, log in subject.parts(queue) if mapping.epoch <= group.origin_epoch][-1:]
            facts = self.audit.rows(last[0]) if last else {}
            earlier = [number for number, fact in sorted(facts.items()) if number >= origin and fact.at < verb.at]
            if earlier:
                raise Violation("4", f"a group that starts at the latest message begins before rows {earlier[:3]}")
