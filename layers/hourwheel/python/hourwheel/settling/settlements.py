"""Opens the settlements of a request, and carries them out on the pull rows that their receipts name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.errors import ReceiptsUnavailable, Rejected
from hourwheel.logs.cas import Versioned
from hourwheel.model.groups import Group
from hourwheel.model.log_names import queue_log
from hourwheel.model.pulls import Settled, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.claiming.claims import ClaimRequest, ClaimResult, SettledRow
from hourwheel.pull_log.open_logs import PullLogs
from hourwheel.pull_log.parsed_settlements import ParsedSettlement, parse_settlement
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.receipts import Receipt, open_receipt
from hourwheel.pull_log.records import PullRow
from hourwheel.reach.outages import Outages
from hourwheel.reach.storages import at_home, holds_no_lease, indexes_by_storage
from hourwheel.registry.broadcast import consumer_group, group_of_receipt
from hourwheel.registry.registry import Registry
from hourwheel.settling.settle import Settler

_STALE = Settled("stale")
_UNAVAILABLE = Settled("unavailable")


class OpenedSettlement(NamedTuple):
    """A settlement whose receipt was issued to this group, and which does not contradict itself."""

    receipt: Receipt
    parsed: ParsedSettlement


class SettlementAnswers(NamedTuple):
    """The answers to settlements; the last row of each log that they have acknowledged as a whole, by partition; and
    the claim that was stored with one of the settlements."""

    answers: list[Settled]
    acknowledged: dict[str, SettledRow]
    claimed: ClaimResult | None


@dataclass
class Settlements:
    """Reads and carries out the settlements of one request to a group."""

    registry: Registry
    opener: PullLogs
    secret: bytes
    subject: str
    group: str
    consumers: dict[tuple[str, int], Group | None] = field(default_factory=dict)
    """In a broadcast group, the groups of consumers that the receipts of the request name."""
    outages: Outages = field(default_factory=Outages)
    """The reasons why some of the settlements are ``unavailable``."""

    def open(self, settlements: Sequence[Settlement]) -> list[OpenedSettlement]:
        """Checks every receipt and settlement before the first is carried out. Raises ``Rejected``."""
        opened = []
        for index, settlement in enumerate(settlements):
            try:
                receipt = open_receipt(self.secret, settlement.receipt, subject=self.subject, group=self.group)
                row = receipt.value
                opened.append(OpenedSettlement(receipt, parse_settlement(settlement, row.claimed, row.base)))
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
            subject, group = self.registry.subject_and_group(self.subject, self.group, create=create)
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

    @staticmethod
    def keeping(
        opened: Sequence[OpenedSettlement], logs: Sequence[PullLog], subject: Subject, group: Group
    ) -> dict[str, PullLog]:
        """Returns those of the logs, by the names of their sources, in which rows keep messages for the pull that
        carries out these settlements. No counter tells of such messages."""
        names = _logs_that_keep(opened, subject, group)
        return {log.source.name: log for log in logs if log.source.name in names} if names else {}

    def keeping_first(
        self, opened: Sequence[OpenedSettlement], logs: list[PullLog], subject: Subject, group: Group
    ) -> list[PullLog]:
        """Returns the logs with those first that ``keeping`` returns."""
        keeping = self.keeping(opened, logs, subject, group)
        return sorted(logs, key=lambda log: log.source.name not in keeping) if keeping else logs

    def settle(
        self, context: Context, subject: Subject, group: Group, opened: Sequence[OpenedSettlement]
    ) -> list[Settled]:
        """Carries out settlements like ``apply``, those of each cell in one transaction where all their logs are there.
        Answers those of another cell than the home cell with ``unavailable`` if it is out of reach, and with ``stale``
        if it was given up."""
        answers: list[Settled] = [_STALE] * len(opened)
        for indexes in indexes_by_storage([settlement.receipt.source for settlement in opened]):
            answered = self._settle_together(context, subject, group, [opened[index] for index in indexes])
            for index, answer in zip(indexes, answered, strict=True):
                answers[index] = answer
        return answers

    def unreached(self, context: Context, opened: Sequence[OpenedSettlement]) -> list[Settled]:
        """Returns the answers to settlements whose storage is out of reach: ``unavailable``, or ``stale`` if it was
        given up or removed, because no lease is left there. Some of them may have been carried out."""
        stale = holds_no_lease(context, opened[0].receipt.source)
        return [_STALE if stale else _UNAVAILABLE] * len(opened)

    def check_reached(self, settled: Sequence[Settled]) -> None:
        """Raises ``ReceiptsUnavailable`` if each of these settlements needs a storage that is out of reach."""
        if settled and all(answer.status == "unavailable" for answer in settled):
            self.outages.raise_as(ReceiptsUnavailable)

    def _settle_together(
        self, context: Context, subject: Subject, group: Group, opened: Sequence[OpenedSettlement]
    ) -> list[Settled]:
        """Carries out settlements whose pulls are in one storage."""
        logs = () if context.has_one_storage else settled_logs(opened, subject, group)
        with self.outages.noted(opened[0].receipt.source):
            return context.atomically(lambda context: self.apply(context, subject, group, opened), logs)
        return self.unreached(context, opened)

    def apply(
        self, context: Context, subject: Subject, group: Group, opened: Sequence[OpenedSettlement]
    ) -> list[Settled]:
        """Carries out settlements in order, and returns the answer to each."""
        return [self._settle(subject, self._log_of(context, subject, group, entry.receipt), entry) for entry in opened]

    def apply_and_claim(
        self,
        context: Context,
        subject: Subject,
        group: Group,
        opened: Sequence[OpenedSettlement],
        first: PullLog | None,
        request: ClaimRequest,
    ) -> SettlementAnswers:
        """Carries out settlements like ``apply``, before a pull claims, from the log ``first`` to begin with. One of
        them may be stored together with the claim that follows it, which is in the result then. That settlement comes
        after the others."""
        logs = [self._log_of(context, subject, group, entry.receipt) for entry in opened]
        last = self._before_claim(opened, logs, first, request)
        # ``_STALE`` holds the place of the last one, which is carried out below.
        answers = [
            _STALE if index == last else self._settle(subject, log, entry)
            for index, (log, entry) in enumerate(zip(logs, opened, strict=True))
        ]
        claimed = None
        if last is not None and first is not None:
            entry = opened[last]
            claimed, current = first.claim_behind(entry.receipt.row_no, entry.receipt.pull_row, request)
            if claimed is None:
                answers[last] = self._settle(subject, first, entry, current)
            else:
                answers[last] = Settled("settled")
                context.meter.record("Settled", entry.receipt.value.claimed)
        acknowledged = _acknowledged(opened, logs, answers, request.consumer, context.clock.now_ms())
        return SettlementAnswers(answers, acknowledged, claimed)

    def _before_claim(
        self,
        opened: Sequence[OpenedSettlement],
        logs: Sequence[PullLog | None],
        first: PullLog | None,
        request: ClaimRequest,
    ) -> int | None:
        """Returns the index of the settlement that may be stored together with a claim from ``first``. Two settlements
        of one row are carried out in their order instead."""
        if first is None or not first.claims_behind:
            return None
        of_log = [index for index, log in enumerate(logs) if log is not None and log.partition == first.partition]
        rows = Counter(opened[index].receipt.row_no for index in of_log)
        for index in of_log:
            receipt, parsed = opened[index]
            if rows[receipt.row_no] == 1 and first.may_claim_behind(receipt.value, parsed, request.consumer):
                return index
        return None

    def _log_of(self, context: Context, subject: Subject, group: Group, receipt: Receipt) -> PullLog | None:
        """Returns the pull log of a receipt; None if its subject or group was deleted."""
        member = self._group_of(receipt, group)
        if member is None or subject.generation != receipt.subject_generation:
            return None
        return self.opener.log(context, member, _source_of(receipt, subject, member), receipt.queue)

    def _settle(
        self,
        subject: Subject,
        log: PullLog | None,
        opened: OpenedSettlement,
        current: Versioned[PullRow] | None = None,
    ) -> Settled:
        if log is None:
            return _STALE
        row_no = opened.receipt.row_no
        row = log.claimed_row(row_no, opened.receipt.pull_row)
        return _STALE if row is None else Settler(log, subject).apply(row_no, row, opened.parsed, current)

    def _group_of(self, receipt: Receipt, group: Group) -> Group | None:
        """Returns the group that a receipt names, which in a broadcast group is that of a consumer; None if it was
        deleted."""
        if receipt.group == group.name:
            return group if receipt.group_generation == group.generation else None
        return self.consumers.get((receipt.group, receipt.group_generation))


def _acknowledged(
    opened: Sequence[OpenedSettlement],
    logs: Sequence[PullLog | None],
    answers: Sequence[Settled],
    consumer: str,
    now_ms: int,
) -> dict[str, SettledRow]:
    last: dict[str, SettledRow] = {}
    for (receipt, parsed), log, answer in zip(opened, logs, answers, strict=True):
        if log is None or answer.status != "settled" or not parsed.acknowledges(receipt.value.claimed):
            continue
        if log.partition not in last or last[log.partition].row_no < receipt.row_no:
            # abs: another clock set the time of the claim.
            held_ms = abs(now_ms - receipt.value.claimed_ms)
            row = receipt.value
            serial = row.is_serial and row.consumer == consumer
            last[log.partition] = SettledRow(receipt.row_no, row.streak, held_ms, serial)
    return last


def _source_of(receipt: Receipt, subject: Subject, group: Group) -> str:
    """Returns the name of the log from which the messages of a receipt were pulled."""
    if receipt.queue is None:
        return group.retry_log
    return receipt.source or queue_log(subject.name, subject.generation, receipt.queue)


def are_at_home(opened: Sequence[OpenedSettlement]) -> bool:
    """Returns whether all messages of these settlements are in the home cell."""
    return all(at_home(settlement.receipt.source) for settlement in opened)


def moves_any(opened: Sequence[OpenedSettlement]) -> bool:
    """Returns whether one of these settlements moves messages to another log, or parks them."""
    return any(parsed.moves for _, parsed in opened)


def keeps_any(opened: Sequence[OpenedSettlement]) -> bool:
    """Returns whether a row of these settlements keeps messages, which a settlement without a pull releases."""
    return any(receipt.value.kept for receipt, _ in opened)


def _logs_that_keep(opened: Sequence[OpenedSettlement], subject: Subject, group: Group) -> set[str]:
    """Returns the logs in which rows keep messages for the pull that acknowledges what they have handed out."""
    keeping = [entry for entry in opened if entry.receipt.value.kept]
    return {
        _source_of(receipt, subject, group) for receipt, parsed in keeping if parsed.acknowledges(receipt.value.claimed)
    }


def settled_logs(opened: Sequence[OpenedSettlement], subject: Subject, group: Group) -> list[str]:
    """Returns the logs that settlements need: those of the pulls, and the retry log for messages that are retried."""
    logs = [_source_of(receipt, subject, group) for receipt, _ in opened]
    return [*logs, group.retry_log] if moves_any(opened) else logs
