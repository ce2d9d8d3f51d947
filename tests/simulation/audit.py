"""Judges every write of the store when it happens.

The audit reads the stored formats. It remembers which batch each row of each log contained, and what each hand-over
promised and where it was stored. ``pulls`` judges what groups do with the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import msgspec

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.buckets.buckets import Bucket, BucketRecord
from hourwheel.buckets.lease import WheelOwner
from hourwheel.dead_letters.dead_rows import DeadState
from hourwheel.delay.outgoing_batches import AGAIN
from hourwheel.delay.ownership import opened
from hourwheel.delay.pending_changes import PendingChange
from hourwheel.errors import Corrupt
from hourwheel.handover.copies import MOVED, REDRIVE, REJECTED, RELEASED, RETRY
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import DueTimes
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row, from_record
from hourwheel.model.fields import IDEMPOTENCY_MS
from hourwheel.model.groups import Group, TagFilter
from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter, Key, Record, Table
from hourwheel.pull_log.open_logs import group_parts
from hourwheel.pull_log.ordered_rows import ParkedKey, Snapshot
from hourwheel.pull_log.records import Checkpoint
from hourwheel.registry.records import SUBJECT_SORT
from tests.simulation.buckets import BucketHistory
from tests.simulation.effects import DelayedEffects
from tests.simulation.facts import NEVER, Copied, LogName, Pick, Promise, Promiser, RowFact
from tests.simulation.members import Members
from tests.simulation.orders import OrderedHistory
from tests.simulation.plan import DAY_MS
from tests.simulation.pulls import PullHistory
from tests.simulation.rules import Rules
from tests.simulation.shares import Shares
from tests.simulation.world import Verb, Violation, World


@dataclass
class StoreAudit:
    world: World
    blobs: MemoryBlobs
    logs: dict[str, dict[int, RowFact]] = field(default_factory=dict)
    trim_marks: dict[str, int] = field(default_factory=dict)
    listed: dict[str, dict[str, int]] = field(default_factory=dict)
    """The entries of each subject in the list, by partition: the generation that is erased, or 0."""
    promises: dict[bytes, Promise] = field(default_factory=dict)
    pulls: dict[str, PullHistory] = field(default_factory=dict)
    dead: dict[str, dict[int, DeadState]] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)
    groups: dict[tuple[str, int, str], Group] = field(default_factory=dict)
    paused_ms: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """The time from which each group, or each subject (without a member), is paused."""
    closed_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    """The time from which each subject is read-only."""
    filters: dict[tuple[str, int, str], list[TagFilter | None]] = field(default_factory=dict)
    """The filters that each group has had, in order."""
    removed_groups: set[tuple[str, int, str]] = field(default_factory=set)
    erased_at: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """When the logs of a deleted group, or ("") of a subject and its groups, had been erased."""
    sends: dict[str, int] = field(default_factory=dict)
    sent_ms: dict[str, int] = field(default_factory=dict)
    """The time at which each message was sent first."""
    copies: dict[tuple[str, int, str], int] = field(default_factory=dict)
    buckets: dict[str, BucketHistory] = field(default_factory=dict)
    totals: Callable[[str], Counter] = lambda log: Counter(0, 0)
    """The counter of a log."""

    @cached_property
    def rules(self) -> Rules:
        return Rules(self)

    @cached_property
    def effects(self) -> DelayedEffects:
        return DelayedEffects(self)

    @cached_property
    def members(self) -> Members:
        return Members(self)

    @cached_property
    def shares(self) -> Shares:
        return Shares(self)

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        if before is not None and (before.value, before.token) == (record.value, record.token):
            if (record.expires_ms or NEVER) < min(before.expires_ms or NEVER, self.soon + DAY_MS):
                raise Violation("12", f"{key} was renewed and is kept for less than a day")
            return
        if key.table == Table.CONSUME:
            self._row_stored(verb, key, before, record)
        elif key.table == Table.SCHEDULE:
            self._schedule_stored(verb, key, before, record)
        elif key.table == Table.DISPATCH:
            self._dispatch_stored(verb, key, before, record)
        elif key.table == Table.PULL:
            self._pull_stored(verb, key, record)
        elif key.table == Table.META and key.partition == "archive":
            self.rules.check_rises(key, before, record)
        elif key.table == Table.META and key.partition.startswith("log/"):
            self._log_stored(key, before, record)
        elif key.table == Table.META:
            self._meta_stored(verb, key, record)

    def _log_stored(self, key: Key, before: Record | None, record: Record) -> None:
        log = key.partition.removeprefix("log/")
        if key.sort == "checkpoint":
            last = None if before is None else msgspec.msgpack.decode(before.value, type=Checkpoint)
            self.pull_history(log).checkpointed(last, msgspec.msgpack.decode(record.value, type=Checkpoint))
        elif key.sort == "trim":
            below, mark = msgspec.msgpack.decode(record.value, type=int), self.trim_marks.get(log, 0)
            self.rules.check_trimmed(log, mark, below)
            self.trim_marks[log] = max(mark, below)
        elif key.sort == "parked":
            history = self.pull_history(log)
            assert isinstance(history, OrderedHistory)
            history.saved(msgspec.msgpack.decode(record.value, type=Snapshot))

    def _schedule_stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        if not key.partition.startswith("changes/"):
            self._row_stored(verb, key, before, record)
            return
        row, _, index = key.sort.partition("-")
        change = msgspec.msgpack.decode(record.value, type=PendingChange)
        self.bucket(key.partition.removeprefix("changes/")).fated((int(row), int(index)), change)

    def _dispatch_stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        if before is not None:
            raise Violation("3", f"row {key.sort} of the dispatch log of {key.partition} was changed")
        self.bucket(key.partition).dispatched(verb, int(key.sort), opened(record))

    def _pull_stored(self, verb: Verb, key: Key, record: Record) -> None:
        if key.partition.startswith("dead@"):
            self._dead_stored(verb, key, record)
            return
        history = self.pull_history(key.partition)
        value = msgspec.msgpack.decode(record.value, type=history.kind)
        history.stored(verb, int(key.sort), value)

    def removed(self, key: Key, record: Record) -> None:
        """Checks that a removed row was no longer needed (invariant 12)."""
        if (record.expires_ms or self.soon + 1) <= self.soon:
            return
        if key.table in (Table.SCHEDULE, Table.DISPATCH):
            log = key.partition.removeprefix("changes/").removeprefix(SCHEDULE_PREFIX)
            self.bucket(log).item_removed(key)
        elif key.table == Table.META and key.partition == "buckets":
            self.bucket(key.sort).removed()
        if key.table == Table.CONSUME and not self.spent(key.partition, int(key.sort)):
            raise Violation("12", f"row {key.partition} {key.sort} was removed before its retention ended")
        if key.table == Table.PULL and not key.partition.startswith("dead@"):
            history = self.pull_history(key.partition)
            row = int(key.sort)
            passed = row < history.checkpoint or self.left_behind(history.source)
            done = passed and row not in history.open
            if not done and not self.gone(history.source, history.member):
                raise Violation("12", f"pull row {key.partition} {key.sort} was removed while it was in use")

    @property
    def soon(self) -> int:
        """Returns the latest time that any clock may show now."""
        return self.world.now_ms + self.world.plan.skew_ms

    def rows(self, log: str) -> dict[int, RowFact]:
        return self.logs.setdefault(log, {})

    def bucket(self, name: str) -> BucketHistory:
        found = self.buckets.get(name)
        if found is None:
            found = self.buckets[name] = BucketHistory(self, Bucket.parse(name))
        return found

    def bucket_of(self, log: str) -> BucketHistory:
        return self.bucket(log.removeprefix(SCHEDULE_PREFIX))

    def expired(self, fact: RowFact) -> bool:
        """Returns whether no group needs to get the messages any more: they have expired, or they are damaged."""
        return fact.damaged or not fact.row.live(self.soon)

    def damage(self, log: str, row: int) -> None:
        """Notes that the messages of a row of a queue cannot be read any more."""
        self.rows(log)[row].damaged = True
        for promise in self.promises.values():
            if promise.source == log and any(pick[0] == row for pick in promise.transfer.picks):
                promise.source_expires_ms = 0

    def gone(self, log: str, member: str = "") -> bool:
        """Returns whether the log's subject or group was deleted."""
        name = LogName.parse(log)
        current = self.subjects.get(name.subject)
        if current is not None and (current.generation > name.generation or current.deleted):
            return True
        member = member or name.member
        removed = (name.subject, name.generation, member) in self.removed_groups
        return removed or self.members.orphaned(name.subject, name.generation, member)

    def erased_before(self, verb: Verb, log: str, member: str) -> bool:
        """Returns whether the log's subject or group had been erased when the verb began."""
        name = LogName.parse(log)
        erased = [self.erased_at.get((name.subject, name.generation, each)) for each in (member, "")]
        return any(at is not None and at < verb.at for at in erased)

    def left_behind(self, log: str) -> bool:
        """Returns whether the log is a part of a queue that has expired: no checkpoint moves there any more."""
        name = LogName.parse(log)
        current = self.subjects.get(name.subject)
        return name.queue is not None and current is not None and log not in current.queue_logs()

    def lost(self, log: str) -> bool:
        """Returns whether the log's rows were erased with its subject or group."""
        return self.gone(log) and LogName.parse(log).kind != "orphans"

    def missed(self, transfer: Transfer) -> bool:
        """Returns whether messages expired on their way: the reserved row was filled, and no process carried the
        transfer out before the expiry of the messages."""
        left = self.rows(transfer.log).get(transfer.row_no)
        return left is not None and left.row.filler and transfer.expires_ms <= self.soon

    def abandoned(self, plan: DueTimes) -> bool:
        """Returns whether messages are retries of a deleted group, whose pulls are not judged."""
        return plan.member is not None and self.gone(f"{plan.subject}~{plan.generation}/0", plan.member)

    def queue_logs(self, subject: str, generation: int, queue: int | None) -> list[str]:
        """Returns the logs in which the queue has been, as far as rows were stored in them."""
        names = {log: LogName.parse(log) for log in list(self.logs)}
        return [
            log
            for log, name in names.items()
            if (name.subject, name.generation, name.kind, name.queue) == (subject, generation, "queue", queue)
        ]

    def pull_history(self, partition: str) -> PullHistory:
        found = self.pulls.get(partition)
        if found is None:
            member, _, source = partition.partition("@")
            name = LogName.parse(source)
            group = self.groups.get((name.subject, name.generation, member))
            known = group is not None and name.queue is not None
            parts = group_parts(self.subjects[name.subject], group, name.queue) if known else []
            origin = next((origin for _, log, origin in parts if log == source), 0)
            kind = OrderedHistory if group is not None and group.ordered else PullHistory
            found = self.pulls[partition] = kind(self, partition, member, source, origin)
        return found

    def keep_promises(self, promiser: Promiser) -> None:
        """Judges how a record's transfers changed: made, moved to another row, carried out."""
        before = {transfer.token: transfer for transfer in promiser.before}
        after = {transfer.token: transfer for transfer in promiser.after}
        for token, transfer in after.items():
            if not self._may_go(promiser, transfer):
                raise Violation("11", f"messages of {promiser.source} go to {transfer.log}, another group's log")
            if token not in before:
                self.promised(promiser.source, transfer, promiser.attempts)
            elif (transfer.log, transfer.row_no) != (before[token].log, before[token].row_no):
                left = self.rows(before[token].log).get(before[token].row_no)
                if left is None or left.token == token:
                    raise Violation(
                        "9", f"{transfer.log}: row {before[token].row_no} was given up though it may be put"
                    )
                self.promises[token].transfer = transfer
        for token, transfer in before.items():
            promise = self.promises[token]
            nowhere = promise.stored_row is None and not self.lost(transfer.log)
            if token not in after and nowhere and promise.source_expires_ms > self.soon:
                raise Violation(
                    "9", f"a hand-over to {transfer.log} row {transfer.row_no} was closed before it was stored"
                )

    def _may_go(self, promiser: Promiser, transfer: Transfer) -> bool:
        plan = transfer.due_times
        if plan is None or not transfer.log.startswith(SCHEDULE_PREFIX):
            return transfer.log in promiser.targets
        return (plan.subject, plan.generation, plan.member) == promiser.address

    def picked(self, source: str, pick: tuple[int, int]) -> tuple[Message, RowFact]:
        fact = self.rows(source)[pick[0]]
        return fact.messages[pick[1]], fact

    def promised(self, source: str, transfer: Transfer, attempts: Mapping[Pick, int] = MappingProxyType({})) -> None:
        picked = [self.picked(source, pick) for pick in transfer.picks]
        fresh = LogName.parse(source).kind == "queue"
        expected = []
        said = transfer.details or (None,) * len(transfer.picks)
        for pick, detail, (message, _) in zip(transfer.picks, said, picked, strict=True):
            attempt = attempts.get(pick, 1 if fresh else message.attempt)
            attempt = 1 if transfer.kind == REDRIVE else attempt + (transfer.kind == RETRY)
            if transfer.kind not in (REDRIVE, REJECTED) and detail is None:
                detail = message.detail
            # A suspect stays one while it waits, and where it is released; whoever retries or redrives it has not been
            # ended by it.
            suspect = transfer.suspects or (transfer.kind in (RELEASED, MOVED, AGAIN) and message.suspect)
            expected.append((message.body, attempt, detail, suspect))
        if transfer.token in self.promises:
            raise Violation("9", f"two hand-overs to {transfer.log} share a token")
        expires_ms = min(0 if fact.damaged else fact.row.expires_ms or NEVER for _, fact in picked)
        self.rules.check_kept(transfer)
        self.promises[transfer.token] = Promise(transfer, expected, expires_ms, source)

    def _row_stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None:
        number, row = int(key.sort), from_record(record)
        if before is not None:
            raise Violation("3", f"row {number} of {key.partition} was changed")
        fact = RowFact(row, record.token, self._messages(row), self.world.calls, self.world.now_ms)
        facts = self.rows(key.partition)
        old = facts.setdefault(number, fact)
        if old is not fact:
            # The row was removed before: a late filler, or the same batch again, does no harm.
            late = row.filler or self.expired(fact) or self.lost(key.partition) or old.token == record.token
            if not late:
                raise Violation("3", f"row {number} of {key.partition} held something else before")
            # A filler does not show that the messages before it were never there: their producer may be told late.
            if self.lost(key.partition) and not row.filler:
                facts[number] = fact
            return
        name = LogName.parse(key.partition)
        self.rules.check_row(f"row {number} of {key.partition}", name, fact)
        if name.kind == "schedule":
            self.bucket_of(key.partition).row_stored(number, fact)
        sent, lost = name.kind in ("queue", "schedule") and record.token not in self.promises, self.lost(key.partition)
        if sent:
            self._batch_stored(verb, name, fact)
        if name.kind == "queue" and not lost:
            self.effects.stored(name, fact)
        if not sent and not lost:
            self._handed_over(key.partition, number, fact)

    def _messages(self, row: Row) -> list[Message]:
        try:
            return messages_of(row, self.blobs)
        except Corrupt:
            # A row may be stored after its segment was removed at the end of the retention.
            if row.live(self.soon):
                raise
            return []

    def _batch_stored(self, verb: Verb, name: LogName, fact: RowFact) -> None:
        """Judges a row with messages that a producer sends."""
        subject, generation = name.subject, name.generation
        plan = fact.entry
        if isinstance(plan, DueTimes) and self.abandoned(plan):
            return
        if fact.messages and verb.name != "produce":
            raise Violation("9", f"{verb.name} put {fact.messages[0].body} into {subject} without a record of it")
        if isinstance(plan, DueTimes):
            subject, generation = plan.subject, plan.generation
        if fact.messages:
            self.rules.check_open(verb, subject, generation)
        for message in fact.messages:
            body = message.body or ""
            position = (subject, generation, body)
            self.copies[position] = copies = self.copies.get(position, 0) + 1
            # A request that is repeated, or goes on, once its key is forgotten is stored again: the API says so.
            keyed = verb.details.get("key") is not None
            forgotten = self.soon + self.world.plan.skew_ms - self.sent_ms.get(body, 0) >= IDEMPOTENCY_MS
            if copies > self.sends.get(body, 0) and not (keyed and forgotten):
                raise Violation("3", f"message {body[:20]} is stored {copies} times in subject {subject}")

    def _handed_over(self, log: str, number: int, fact: RowFact) -> None:
        promise = self.promises.get(fact.token)
        # The messages may have been erased before they were copied: the row is a filler then, without an entry.
        planned = fact.entry if promise is None else promise.transfer.due_times
        if isinstance(planned, DueTimes) and self.abandoned(planned):
            if promise is not None:
                promise.stored_row = number  # a process that does not know of the deletion may have moved it there
            return
        if promise is None and fact.row.filler:
            return
        if promise is None:
            raise Violation("9", f"row {number} of {log} was put without a record of it")
        if promise.stored_row is not None:
            raise Violation("9", f"a hand-over was stored in {log} at rows {promise.stored_row} and {number}")
        if (promise.transfer.log, promise.transfer.row_no) != (log, number):
            raise Violation(
                "9", f"a hand-over was stored in {log} row {number}, recorded is row {promise.transfer.row_no}"
            )
        found = [(message.body, message.attempt, message.detail, message.suspect) for message in fact.messages]
        expired = promise.source_expires_ms <= self.soon or not fact.row.live(self.soon)
        partial = expired and all(item in promise.expected for item in found)
        if found != promise.expected and not partial:
            raise Violation("9", f"{log} row {number} holds {found}, expected {promise.expected}")
        self._check_dues(f"{log} row {number}", promise, fact, found)
        promise.stored_row = number

    def _check_dues(self, where: str, promise: Promise, fact: RowFact, found: list[Copied]) -> None:
        """Checks that each message is due when it was promised, also where other messages of the transfer are
        missing."""
        plan, entry = promise.transfer.due_times, fact.entry
        if plan is None or fact.row.filler:
            return
        if not isinstance(entry, DueTimes) or (entry.subject, entry.generation, entry.member) != (
            plan.subject,
            plan.generation,
            plan.member,
        ):
            raise Violation("9", f"{where} says {entry}, expected {plan}")
        dues = [entry.due_ms(index) for index in range(len(found))]
        expected = [plan.due_ms(promise.expected.index(message)) for message in found]
        if dues != expected:
            raise Violation("9", f"{where} is due at {dues}, expected {expected}")

    def _dead_stored(self, verb: Verb, key: Key, record: Record) -> None:
        value = msgspec.msgpack.decode(record.value, type=DeadState)
        log, number = key.partition.removeprefix("dead@"), int(key.sort)
        states = self.dead.setdefault(log, {})
        before = states.get(number) or DeadState(expires_ms=value.expires_ms)
        states[number] = value
        fresh = value.done - before.done
        row = self.rows(log).get(number)
        if not before.done <= value.done and row is not None and not self.expired(row):
            raise Violation("5", f"dead letters of {log} row {number} came back")
        name = LogName.parse(log)
        target = f"{name.subject}~{name.generation}/retry/{name.member}"
        self.keep_promises(Promiser(before.transfers, value.transfers, log, frozenset({target})))
        sent = {pick[1] for transfer in value.transfers for pick in transfer.picks}
        if verb.name == "redrive" and not fresh <= sent:
            raise Violation("9", f"dead letters {sorted(fresh - sent)} of {log} row {number} were marked, never sent")
        started = {transfer.token for transfer in before.transfers}
        for transfer in value.transfers:
            if transfer.token not in started and not {pick[1] for pick in transfer.picks} <= fresh:
                raise Violation("9", f"dead letters of {log} row {number} are sent again twice")

    def _meta_stored(self, verb: Verb, key: Key, record: Record) -> None:
        if key.partition.startswith("subjects/"):
            self.listed.setdefault(key.sort, {})[key.partition] = msgspec.msgpack.decode(record.value, type=int)
            self.rules.check_listed(key.sort)
        elif key.partition.startswith("subject/") and key.sort == SUBJECT_SORT:
            subject = msgspec.msgpack.decode(record.value, type=Subject)
            self.rules.check_sealed(self.subjects.get(subject.name), subject)
            self.rules.check_route(self.subjects.get(subject.name), subject)
            self._paused((subject.name, subject.generation, ""), paused=subject.paused)
            self._closed(subject)
            if subject.erased:
                self.erased_at.setdefault((subject.name, subject.generation, ""), self.world.calls)
            self.subjects[subject.name] = subject
            self.rules.check_listed(subject.name)
        elif key.partition.startswith("subject/"):
            self._group_stored(verb, msgspec.msgpack.decode(record.value, type=Group))
        elif key.partition == "wheels":
            owner = msgspec.msgpack.decode(record.value, type=WheelOwner)
            self.rules.check_reading(verb, key, owner)
            self.bucket(key.sort).read(owner.read_below)
        elif key.partition == "buckets":
            self.bucket(key.sort).changed(msgspec.msgpack.decode(record.value, type=BucketRecord))
        elif key.partition.startswith("parked/"):
            history = self.pull_history(key.partition.removeprefix("parked/"))
            assert isinstance(history, OrderedHistory)
            history.pages[key.sort] = msgspec.msgpack.decode(record.value, type=tuple[ParkedKey, ...])

    def _group_stored(self, verb: Verb, group: Group) -> None:
        position = (group.subject, group.subject_generation, group.member)
        if group.consumer:
            group = self.members.stored(verb, group)
        elif group.broadcast:
            self.members.changed(group)
        if position not in self.groups and group.start == "latest":
            self.rules.check_begins_at_the_end(verb, group)
        self.groups[position] = group
        had = self.filters.setdefault(position, [])
        if had[-1:] != [group.filter]:
            had.append(group.filter)
        self._paused(position, paused=group.paused)
        if group.deleted:
            self.removed_groups.add(position)
        if group.erased:
            self.erased_at.setdefault(position, self.world.calls)

    def _closed(self, subject: Subject) -> None:
        position = (subject.name, subject.generation)
        if subject.read_only:
            self.closed_ms.setdefault(position, self.world.now_ms)
        else:
            self.closed_ms.pop(position, None)

    def _paused(self, position: tuple[str, int, str], *, paused: bool) -> None:
        if paused:
            self.paused_ms.setdefault(position, self.world.now_ms)
        else:
            self.paused_ms.pop(position, None)

    def spent(self, log: str, row: int) -> bool:
        """Returns whether a row that has not expired is no longer needed: deleted, or all its dead letters are
        settled."""
        fact = self.rows(log)[row]
        if self.expired(fact) or fact.row.filler or self.lost(log):
            return True
        state = self.dead.get(log, {}).get(row)
        return state is not None and len(state.done) == fact.row.count and not state.transfers
