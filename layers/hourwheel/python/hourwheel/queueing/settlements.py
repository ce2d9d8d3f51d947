"""Opens the settlements of a request, and carries them out on the pull rows that their receipts name."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.errors import Rejected
from hourwheel.log_names import LogName
from hourwheel.logs.cas import Versioned
from hourwheel.model.groups import Group
from hourwheel.model.pulls import Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.queueing.key_state_cache import KeyStateCache
from hourwheel.queueing.parsed_settlements import ParsedSettlement, parse_settlement
from hourwheel.queueing.pull_log import PullLog
from hourwheel.queueing.receipts import Receipt, open_receipt
from hourwheel.queueing.records import PullRow
from hourwheel.queueing.settle import Settler
from hourwheel.registry.broadcast import consumer_group, group_of_receipt
from hourwheel.registry.registry import Registry

_STALE = Settled("stale")

_KEPT_NAMES = 4_096  # of about 100 bytes each


class OpenedSettlement(NamedTuple):
    """A settlement whose receipt was issued to this group, and which does not contradict itself."""

    receipt: Receipt
    parsed: ParsedSettlement


@dataclass
class Settlements:
    """Reads and carries out the settlements of one request to a group."""

    registry: Registry
    key_states: KeyStateCache
    secret: bytes
    subject: str
    group: str
    consumers: dict[tuple[str, int], Group | None] = field(default_factory=dict)
    """In a broadcast group, the groups of consumers that the receipts of the request name."""

    def open(self, settlements: Sequence[Settlement]) -> list[OpenedSettlement]:
        """Checks every receipt and settlement before the first is carried out. Raises ``Rejected``."""
        opened = []
        for index, settlement in enumerate(settlements):
            try:
                receipt = open_receipt(self.secret, settlement.receipt, subject=self.subject, group=self.group)
                opened.append(OpenedSettlement(receipt, parse_settlement(settlement, receipt.value.size)))
            except Rejected as error:
                error.field = f"settle[{index}].{error.field}"
                raise
        return opened

    def subject_and_group(
        self, opened: Sequence[OpenedSettlement], *, create: bool, consumer: str = ""
    ) -> tuple[Subject, Group]:
        """Returns the subject and the group; of a broadcast group that of the consumer, if one is named. Reads them
        again when a receipt names a later generation than the cached one."""
        for _ in range(2):
            subject = self.registry.subject(self.subject, create=create)
            group = self.registry.group(subject, self.group, create=create)
            if not any(
                receipt.subject_generation > subject.generation
                or (receipt.group == group.name and receipt.group_generation > group.generation)
                for receipt, _ in opened
            ):
                break
            self.registry.forget(self.subject)
        if not group.broadcast:
            return subject, group
        # Here and not when the receipts are settled, which may be in a transaction.
        for receipt, _ in opened:
            named = (receipt.group, receipt.group_generation)
            self.consumers[named] = group_of_receipt(self.registry, subject, group, *named)
        member = consumer_group(self.registry, subject, group, consumer, create=create) if consumer else None
        return subject, member or group

    def settle(
        self, context: Context, subject: Subject, group: Group, opened: Sequence[OpenedSettlement]
    ) -> list[Settled]:
        """Carries out settlements like ``apply``, in one transaction where all their logs are in one cell."""
        logs = () if context.cells is None else settled_logs(opened, subject, group)
        return context.atomically(lambda context: self.apply(context, subject, group, opened), logs)

    def apply(
        self, context: Context, subject: Subject, group: Group, opened: Sequence[OpenedSettlement]
    ) -> list[Settled]:
        """Carries out settlements in order, and returns the answer to each."""

        def settle(receipt: Receipt, parsed: ParsedSettlement) -> Settled:
            member = self._group_of(receipt, group)
            if member is None or subject.generation != receipt.subject_generation:
                return _STALE
            source = context.log(_source_of(receipt, subject, member))
            log = PullLog(context, member, source, receipt.queue)
            row: Versioned[PullRow] | None = receipt.pull_row
            if member.ordered:
                row = self.key_states.claimed_row(log, receipt.row_no, receipt.value.claim)
            return _STALE if row is None else Settler(log, subject).apply(receipt.row_no, row, parsed)

        return [settle(receipt, parsed) for receipt, parsed in opened]

    def _group_of(self, receipt: Receipt, group: Group) -> Group | None:
        """Returns the group that a receipt names, which in a broadcast group is that of a consumer; None if it is
        gone."""
        if receipt.group == group.name:
            return group if receipt.group_generation == group.generation else None
        return self.consumers.get((receipt.group, receipt.group_generation))


def _source_of(receipt: Receipt, subject: Subject, group: Group) -> str:
    """Returns the name of the log from which the messages of a receipt were pulled."""
    if receipt.queue is None:
        return group.retry_log
    return receipt.source or _queue_log(subject.name, subject.generation, receipt.queue)


@lru_cache(_KEPT_NAMES)
def _queue_log(subject: str, generation: int, queue: int) -> str:
    return str(LogName.of_queue(subject, generation, queue))


def settled_logs(opened: Sequence[OpenedSettlement], subject: Subject, group: Group) -> list[str]:
    """Returns the logs that settlements need: those of the pulls, and the retry log for messages that are retried."""
    logs = [_source_of(receipt, subject, group) for receipt, _ in opened]
    return [*logs, group.retry_log] if any(parsed.moves for _, parsed in opened) else logs
