"""Judges the history of one bucket: which messages waited there, and which were handed over, cancelled or moved."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hourwheel.buckets.buckets import Bucket, BucketRecord
from hourwheel.delay.outgoing_batches import AGAIN, DROPPED, DUE, ORPHANED
from hourwheel.delay.ownership import Dispatched
from hourwheel.delay.pending_changes import PendingChange
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import CancelMarker, DueTimes
from hourwheel.ports.storage import Key, Table
from tests.simulation.facts import LogName, Pick, Promiser, RowFact
from tests.simulation.herds import DestinationTurns
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit

_DAY_MS = 86_400_000
_OVERSLEPT_MS = 3_000
"""The calls between storing a message and announcing it take a second at most, and the announcement arrives within a
quarter of one."""

LATEST_MS = 40_000
"""A wheel starts 90 s before its first message is due, timers are at most a minute late, and a wheel rests for at most
12 s. Twice the longest delay of thousands of such messages."""

LATEST_PRECISE_MS = 100_000
"""A precise timer may be lost: the sweeper comes each minute, and lets a start be 5 s late before it orders another,
which comes within 2 s. A wheel rests for at most 12 s."""

_MINUTE_MS = 60_000


@dataclass
class BucketHistory:
    """The history of a bucket. ``named``: the transfer that hands each message over; ``cancelled``: the messages whose
    senders got the answer that they are cancelled."""

    audit: "StoreAudit"
    bucket: Bucket
    registered: bool = False
    closed_ms: int = 0
    dropped: bool = False
    next_row: int = 0
    last_ms: int = 0
    named: dict[Pick, bytes] = field(default_factory=dict)
    named_at: dict[Pick, int] = field(default_factory=dict)
    """The moment of the run at which the dispatch log first named each message."""
    marked: dict[Pick, int] = field(default_factory=dict)
    """The row of the first cancel marker of each message."""
    read_below: int = 0
    """The row of the schedule log below which the owner of the wheel has published to have read."""
    lowered_at: int = 0
    """The moment of the run at which a new owner began to read from the start."""
    changes: dict[Pick, PendingChange] = field(default_factory=dict)
    cancelled: set[Pick] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.turns = DestinationTurns(self)

    @property
    def name(self) -> str:
        return self.bucket.name

    @property
    def open(self) -> bool:
        return self.registered and not self.closed_ms

    @property
    def may_go(self) -> bool:
        """Returns whether the rest of the bucket may be removed, or was removed: a bucket that is registered again is
        empty."""
        return self.dropped or 0 < self.closed_ms <= self.audit.soon - _DAY_MS

    def changed(self, record: BucketRecord) -> None:
        """Judges a changed record: in a closed bucket no message waits any more (12)."""
        self.registered = True
        if record.closed_ms and not self.closed_ms:
            self._check_closed()
        self.closed_ms = max(self.closed_ms, record.closed_ms)

    def removed(self) -> None:
        if not self.closed_ms:
            raise Violation("12", f"bucket {self.name} was removed before it was closed")
        self.registered, self.dropped = False, True

    def item_removed(self, key: Key) -> None:
        """Checks that parts of a bucket are removed only once the bucket has been closed for a day."""
        if not self.may_go:
            raise Violation("12", f"{key} was removed before its bucket had been closed for a day")
        if key.table == Table.DISPATCH:
            self.next_row = 0

    def row_stored(self, number: int, fact: RowFact) -> None:
        entry = fact.entry
        if isinstance(entry, CancelMarker):
            pick = (entry.row_no, entry.index)
            self.marked[pick] = min(number, self.marked.get(pick, number))
        elif not fact.row.filler and self.closed_ms:
            raise Violation("12", f"row {number} came into bucket {self.name}, which is closed")

    def dispatched(self, verb: Verb, row: int, value: Dispatched) -> None:
        """Judges a step of a wheel: its row is the next one (9), and its messages are due by the wheel's clock (7) and
        not cancelled (8)."""
        if row != self.next_row:
            raise Violation("9", f"bucket {self.name}: dispatch row {row} came, {self.next_row} is next")
        self.next_row = row + 1
        if value.at_ms < self.last_ms:
            raise Violation("8", f"bucket {self.name}: dispatch row {row} is older than the one before it")
        self.last_ms = value.at_ms
        picks = {pick for transfer in value.transfers for pick in transfer.picks}
        self.turns.dispatched(verb, value, picks - self.named.keys())
        for transfer in value.transfers:
            if self._is_open(transfer):
                continue
            for pick in transfer.picks:
                self._check_named(verb, row, value, transfer, pick)
            self.audit.promised(self.bucket.log, transfer)
            self.named |= dict.fromkeys(transfer.picks, transfer.token)
            for pick in transfer.picks:
                self.named_at.setdefault(pick, self.audit.world.calls)

    def fated(self, pick: Pick, value: PendingChange) -> None:
        """Judges a pending change, which is final once it is decided (8)."""
        where = f"message {pick} of bucket {self.name}"
        before = self.changes.get(pick) or PendingChange(due_ms=value.due_ms)
        if before.due_ms != value.due_ms or (before.state != "waiting" and before.state != value.state):
            raise Violation("8", f"{where} was {before}, it is {value}")
        plan = self.plan(pick)
        address = (plan.subject, plan.generation, plan.member)
        self.audit.keep_promises(
            Promiser(before.transfers, value.transfers, self.bucket.log, frozenset(), address=address)
        )
        self.changes[pick] = value
        leaves = value.state == "cancelled" or value.transfers or value.state == "moved"
        if leaves and pick in self.named:
            raise Violation("8", f"{where} was handed over, and is {value}")
        if value.state == "dispatched" and pick not in self.named:
            raise Violation("8", f"{where} was not handed over, and is {value}")
        if value.state == "moved" and before.state != "moved":
            self._check_moved(where, before, value)

    def tell_cancelled(self, pick: Pick) -> None:
        """Records that a sender got the answer that the message is cancelled."""
        if pick in self.named:
            raise Violation("8", f"message {pick} of bucket {self.name} was handed over, the answer is cancelled")
        self.cancelled.add(pick)

    def plan(self, pick: Pick) -> DueTimes:
        entry = self.audit.rows(self.bucket.log)[pick[0]].entry
        assert isinstance(entry, DueTimes)
        return entry

    def waiting(self) -> list[Pick]:
        """Returns the messages that are neither handed over, nor cancelled or moved by their sender."""
        return [
            pick
            for number, fact in sorted(self.audit.rows(self.bucket.log).items())
            for pick in ((number, index) for index in range(fact.row.count))
            if pick not in self.named and not self._left(pick)
        ]

    def _left(self, pick: Pick) -> bool:
        change = self.changes.get(pick)
        if change is None or pick not in self.marked:
            return False
        # A cancel counts even if its answer was lost.
        return change.state in ("cancelled", "moved") or change.due_ms is None

    def _check_closed(self) -> None:
        total = self.audit.totals(self.bucket.log)
        rows = self.audit.rows(self.bucket.log)
        missing = [number for number in range(total.rows) if number not in rows]
        if not total.sealed or missing:
            raise Violation("12", f"bucket {self.name} is closed, its rows {missing} are open")
        waiting = [pick for pick in self.waiting() if pick not in self.marked]
        if waiting:
            raise Violation("7", f"bucket {self.name} is closed, {waiting} were not handed over")
        for token in self.named.values():
            promise = self.audit.promises[token]
            transfer = promise.transfer
            nowhere = not transfer.log or self.audit.lost(transfer.log) or self.audit.missed(transfer)
            if promise.stored_row is None and not nowhere:
                raise Violation("9", f"bucket {self.name} is closed, {promise.transfer.picks} did not land")

    def _is_open(self, transfer: Transfer) -> bool:
        """Returns whether the row names a transfer of an earlier row once more, because its cell was out of reach: for
        the same row, and no other messages (9)."""
        promise = self.audit.promises.get(transfer.token)
        if promise is None:
            return False
        before = promise.transfer
        if before.reservation != transfer.reservation or not set(transfer.picks) <= set(before.picks):
            raise Violation("9", f"bucket {self.name}: {transfer} is not the transfer that was named before, {before}")
        return True

    def _check_named(self, verb: Verb, row: int, value: Dispatched, transfer: Transfer, pick: Pick) -> None:
        where = f"bucket {self.name}, dispatch row {row}: message {pick}"
        fact = self.audit.rows(self.bucket.log).get(pick[0])
        if fact is None or pick[1] >= fact.row.count:
            raise Violation("9", f"{where} does not exist")
        self._check_target(transfer, self.plan(pick))
        due_ms, clock_ms = self.plan(pick).due_ms(pick[1]), self.audit.world.latest_clock(verb.actor)
        # The wheel's clock may be wrong by as much as the plan allows.
        if due_ms > min(clock_ms, value.at_ms, transfer.at_ms):
            raise Violation("7", f"{where} is due at {due_ms}, handed over at {clock_ms}, {value.at_ms}")
        slack_ms = _MINUTE_MS if self.plan(pick).minute else 0
        self._check_late(where, max(due_ms, fact.at_ms) + slack_ms)
        change = self.changes.get(pick)
        if pick in self.cancelled or (change and (change.state in ("cancelled", "moved") or change.transfers)):
            raise Violation("8", f"{where} is handed over, it was {change}")
        named = self.named.get(pick)
        if named is not None:
            self._check_renamed(where, named)

    def _check_late(self, where: str, due_ms: int) -> None:
        world = self.audit.world
        delays, late_ms = world.plan.delays, world.now_ms - due_ms
        latest_ms = LATEST_PRECISE_MS if delays is not None and delays.precise else LATEST_MS
        if delays is not None and delays.prompt and world.lively and late_ms > latest_ms:
            raise Violation("7", f"{where} is handed over {late_ms} ms late, in a run without faults")

    def read(self, below: int) -> None:
        """Records how far the owner of the wheel has published to have read."""
        if below < self.read_below:
            self.lowered_at = self.audit.world.calls
        self.read_below = below

    def check_slept(self, began_ms: int) -> None:
        """Judges a sleep of the bucket's wheel, in a run without faults: it ends once a message is due, also one that
        was stored during the sleep (7), and once a cancel marker is stored (8)."""
        world, rows = self.audit.world, self.audit.rows(self.bucket.log)
        if not world.lively:
            return
        for pick in self.waiting():
            since_ms = max(began_ms, self.plan(pick).due_ms(pick[1]), rows[pick[0]].at_ms)
            # The wheel has dropped a message whose marker it has read: the sweeper finishes a move that was cut off.
            if world.now_ms - since_ms > _OVERSLEPT_MS and not self._is_changing(pick):
                raise Violation("7", f"the wheel of {self.name} slept past message {pick}, due at {since_ms}")
        for number, fact in rows.items():
            unread = isinstance(fact.entry, CancelMarker) and number >= self.read_below
            if unread and world.now_ms - max(began_ms, fact.at_ms) > _OVERSLEPT_MS:
                raise Violation("8", f"the wheel of {self.name} slept past the cancel marker in row {number}")

    def _is_changing(self, pick: Pick) -> bool:
        """Returns whether the wheel has read a cancel marker of the message, and the change is not carried out."""
        change, marker = self.changes.get(pick), self.marked.get(pick)
        return change is not None and change.state == "waiting" and marker is not None and marker < self.read_below

    def certain_changes(self) -> set[Pick]:
        """Returns the messages whose change can be carried out, as the wheel has read its marker, and is not yet."""
        return {
            pick
            for pick, change in self.changes.items()
            if change.state == "waiting" and 0 <= change.marker_row < self.read_below
        }

    def check_swept(self, certain: set[Pick], began_at: int) -> None:
        """Judges a sweep that began at this moment of a run without faults: it carries out the changes that were
        ``certain`` then, so that a message whose move was cut off is late by no more than the pause between two sweeps
        (7)."""
        left = certain & self.certain_changes()
        # A new owner may be asked before it has read the markers.
        if left and self.lowered_at <= began_at:
            raise Violation("7", f"a sweep left the changes of {sorted(left)} in bucket {self.name} as they were")

    def _check_renamed(self, where: str, token: bytes) -> None:
        """Judges a message that is named again, which is right only if its reserved row was filled."""
        promise = self.audit.promises[token]
        log, row = promise.transfer.log, promise.transfer.row_no
        if promise.stored_row is not None:
            raise Violation("7", f"{where} is handed over again, it stands in {log} row {promise.stored_row}")
        left = self.audit.rows(log).get(row)
        if not self.audit.lost(log) and (left is None or left.token == token):
            raise Violation("9", f"{where} is handed over again, though {log} row {row} may be put")
        promise.replaced = True

    def _check_target(self, transfer: Transfer, plan: DueTimes) -> None:
        audit, head = self.audit, f"{plan.subject}~{plan.generation}"
        if transfer.kind == DUE:
            name = LogName.parse(transfer.log)
            right = plan.member is None and name.kind == "queue" and f"{name.subject}~{name.generation}" == head
        elif transfer.kind == AGAIN:
            right = transfer.log == f"{head}/retry/{plan.member}"
        elif transfer.kind == ORPHANED:
            right = transfer.log == f"{head}/dead" and plan.member is None and audit.gone(f"{head}/0")
        else:
            right = transfer.kind == DROPPED and plan.member is not None and audit.gone(f"{head}/0", plan.member)
        if not right:
            raise Violation("11", f"bucket {self.name}: messages for {plan} go to {transfer.kind} {transfer.log}")

    def _check_moved(self, where: str, before: PendingChange, value: PendingChange) -> None:
        if value.moved is None or not before.transfers:
            raise Violation("8", f"{where} moved nowhere")
        transfer = before.transfers[0]
        promise, (name, row, _) = self.audit.promises[transfer.token], value.moved
        if (Bucket.parse(name).log, row) != (promise.transfer.log, promise.stored_row):
            raise Violation("8", f"{where} is said to be in {value.moved}, it is in row {promise.stored_row}")
