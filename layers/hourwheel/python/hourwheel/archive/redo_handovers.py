"""Repeats hand-overs that their source records as done and whose target row was not archived any more: into the same
row, from the messages of the source."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from hourwheel.archive.summary import Pick, UnarchivedHandover
from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.delay.dispatch import Dispatcher
from hourwheel.delay.held_batches import HeldBatches
from hourwheel.delay.outgoing_batches import OutgoingBatches
from hourwheel.delay.ownership import Fenced, Ownership
from hourwheel.delay.schedule_rows import ScheduleRowCache
from hourwheel.errors import Conflict, Filled
from hourwheel.handover.copies import RELEASED, RETRY, RowMaker
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import DueTimes
from hourwheel.logs.log import Log
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.log_names import LogName, is_schedule, source_of
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.records import Moved
from hourwheel.reach.outages import Outages
from hourwheel.reach.pauses import Pauses
from hourwheel.sweep.erasure import make_registry

OWNER = "rebuild"


def token_of(log: str, row_no: int) -> bytes:
    """Returns the token of a row that a rebuild puts: every try puts the row with one and the same token."""
    return blake2b(f"{log} {row_no}".encode(), digest_size=16).digest()


def occupied(log: str, row_no: int) -> Conflict:
    return Conflict(
        "store-in-use",
        f"row {row_no} of {log} holds another batch: stop every server of the store until the rebuild has ended",
    )


def queue_number_of(log: str) -> int | None:
    """Returns the number of the subject's queue whose log this is, or None for any other log."""
    return LogName.parse(log).queue


@dataclass(frozen=True)
class HandoverReplayer:
    """Repeats the hand-overs into ``logs``. ``members``: each group with its subject, by the partitions of the group's
    pull logs."""

    context: Context
    members: dict[str, tuple[Subject, Group]]
    logs: set[str]

    def carry_out(self, handovers: Iterable[UnarchivedHandover]) -> tuple[int, int]:
        """Repeats the hand-overs. Returns how many messages arrived again, and how many are lost because their source
        is not archived or cannot be read."""
        rest = [handover for handover in handovers if self._needs_replay(handover)]
        replayed = lost = 0
        while rest:
            # The source of one hand-over may be the target of another.
            ready, waiting = self._parted(rest)
            # No other hand-over brings the missing messages: those that are there are handed over, the others are lost.
            if not ready:
                ready, waiting = waiting, []
            for handover in ready:
                arrived = self._carry_out(handover)
                replayed, lost = replayed + arrived, lost + len(handover.picks) - arrived
            rest = waiting
        return replayed, lost

    def _parted(
        self, handovers: Iterable[UnarchivedHandover]
    ) -> tuple[list[UnarchivedHandover], list[UnarchivedHandover]]:
        """Returns the hand-overs whose source has all their messages, and the others."""
        ready, waiting = list[UnarchivedHandover](), list[UnarchivedHandover]()
        for handover in handovers:
            (waiting if self._missing(handover) else ready).append(handover)
        return ready, waiting

    def _needs_replay(self, handover: UnarchivedHandover) -> bool:
        if handover.what.log not in self.logs:
            return False
        expires_ms = self._transfer(handover).expires_ms
        return not expires_ms or expires_ms > self.context.clock.now_ms()

    def _missing(self, handover: UnarchivedHandover) -> set[Pick]:
        """Returns the messages whose row the source does not have."""
        source = self._source(handover)
        rows = {row_no: source.get(row_no) for row_no, _ in handover.picks}
        stored = {row_no for row_no, row in rows.items() if row is not None and not row.filler}
        return {pick for pick in handover.picks if pick[0] not in stored}

    def _carry_out(self, handover: UnarchivedHandover) -> int:
        """Repeats one hand-over. Returns how many messages the target row has then."""
        target = self.context.log(handover.what.log).get(handover.what.row_no)
        # Put by an earlier try of this rebuild, which was cut off.
        if target is not None:
            return target.count
        missing = self._missing(handover)
        picks = tuple(pick for pick in handover.picks if pick not in missing)
        if not picks:
            return 0
        transfer = msgspec.structs.replace(self._transfer(handover), picks=picks)
        log = self.context.log(transfer.log)
        if isinstance(handover.what, Transfer):
            self._dispatch(handover.source, transfer)
        else:
            source = self._source(handover)
            row = RowMaker(self.context, source, queue_number_of(source.name))(transfer)
            try:
                log.put(transfer.reservation, row, transfer.token)
            except Filled:
                raise occupied(transfer.log, transfer.row_no) from None
        arrived = log.get(transfer.row_no)
        return 0 if arrived is None else arrived.count

    def _dispatch(self, name: str, transfer: Transfer) -> None:
        bucket = Bucket.parse(name)
        # The dispatcher needs no lease of the bucket: ``finish`` only repeats puts.
        ownership = Ownership(self.context, bucket, OWNER)
        held = HeldBatches(Pauses(self.context, "delayed messages"))
        registry = make_registry(self.context)
        batches = OutgoingBatches(registry, bucket.log, ScheduleRowCache(self.context, bucket))
        dispatcher = Dispatcher(self.context, registry, ownership, batches, held)
        try:
            dispatcher.finish([transfer])
        except Fenced:
            raise occupied(transfer.log, transfer.row_no) from None
        outages = Outages()
        outages.add(left.log for left in held.open)
        outages.check(f"a row of {transfer.log} was not put: rebuild again once the cell answers")

    def _source(self, handover: UnarchivedHandover) -> Log:
        if isinstance(handover.what, Transfer):
            return self.context.log(str(LogName.of_schedule(handover.source)))
        return self.context.log(source_of(handover.source))

    def _transfer(self, handover: UnarchivedHandover) -> Transfer:
        return handover.what if isinstance(handover.what, Transfer) else self._moved(handover.source, handover.what)

    def _moved(self, partition: str, moved: Moved) -> Transfer:
        """Returns the transfer that the pull row recorded. The due time of a retry is not archived: the retry becomes
        due at the end of its bucket, so it is not early."""
        subject, group = self.members[partition]
        due_times, keep_ms = None, DEAD_RETENTION_MS
        if is_schedule(moved.log):
            due_ms = Bucket.of_log(moved.log).end_ms - 1
            due_times = DueTimes(group.subject, group.subject_generation, group.member, due_ms)
        elif moved.kind in (RETRY, RELEASED):
            keep_ms = subject.retention_ms
        return Transfer(
            kind=moved.kind,
            log=moved.log,
            row_no=moved.row_no,
            first_seq=moved.first_seq,
            token=token_of(moved.log, moved.row_no),
            at_ms=moved.at_ms,
            expires_ms=0 if due_times else moved.at_ms + keep_ms,
            picks=moved.picks,
            due_times=due_times,
        )
