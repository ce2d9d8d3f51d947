"""The pull log of an ordered group: it hands out the messages of a key one after the other, from their places."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import msgspec

from hourwheel.context import Context
from hourwheel.handover.copies import ATTEMPTS, REJECTED
from hourwheel.handover.handover import reserve
from hourwheel.logs.cas import Versioned
from hourwheel.model.fields import DEAD_RETENTION_MS, DETAILS_BYTES
from hourwheel.model.groups import Group
from hourwheel.model.lag import Lag
from hourwheel.model.subjects import Subject
from hourwheel.ordered.claims import claim, has_turn
from hourwheel.ordered.held_keys import add_parked, oldest_parked_ms
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.parts import in_turn
from hourwheel.ordered.settle import settle_in_order
from hourwheel.ordered.suspects import has_suspect
from hourwheel.pull_log.claiming.claims import ClaimRequest, ClaimResult
from hourwheel.pull_log.open_logs import LogMaker, first_parts, pull_logs
from hourwheel.pull_log.ordered_rows import STOPPED_MS, Order, OrderedRow
from hourwheel.pull_log.parked_counts import ParkedLag
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import DecidedRow, PullLog
from hourwheel.pull_log.records import PullRow


@dataclass(frozen=True)
class OrderedLog(PullLog):
    """An ordered group's progress on one source log."""

    key_states: KeyStateCache = field(kw_only=True, compare=False, repr=False)

    def on(self, context: Context) -> "OrderedLog":
        source, states = context.log(self.source.name), self.key_states
        log = OrderedLog(
            context, self.group, source, self.queue, self.origin, self.mapping, self.blobs, key_states=states
        )
        log.__dict__["partition"] = self.partition
        return log

    @property
    def joins(self) -> bool:
        return False

    @property
    def has_retries(self) -> bool:
        return True

    @property
    def keeps_failed(self) -> bool:
        return True

    @property
    def claims_behind(self) -> bool:
        return False

    def claim(self, request: ClaimRequest) -> ClaimResult:
        return claim(self.key_states, self, request)

    def has_message(self) -> bool:
        return has_turn(self.key_states, self)

    def waits(self) -> bool:
        return self.key_states.waits(self)

    def holds(self) -> bool:
        return self.key_states.holds(self)

    def next_due_ms(self) -> int | None:
        state = self.key_states.cached(self)
        return None if state is None else state.next_due_ms(self.context.clock.now_ms())

    def knows_suspect(self) -> bool:
        return has_suspect(self.key_states.cached(self), self.context.clock.now_ms())

    def comes_to_suspect(self) -> bool:
        return self.knows_suspect()

    def claimed_row(self, row_no: int, claimed: Versioned[PullRow]) -> Versioned[PullRow] | None:
        # The receipt has a short form of the row.
        return self.key_states.claimed_row(self, row_no, claimed.value.claim)

    def decided_in_place(self, row: PullRow, parsed: ParsedSettlement) -> DecidedRow:
        assert isinstance(row, OrderedRow)
        if not parsed.moves or row.order is None:
            return DecidedRow(row, row.settled | parsed.named, ())
        return _parked_again(self, row, row.order, parsed)

    def changed(self, row_no: int, row: PullRow, token: bytes) -> None:
        self.key_states.changed(self, row_no, row, token)

    def sweep(self) -> None:
        self.key_states.sweep(self)

    def parked(self, since_ms: int) -> ParkedLag:
        counts = self.key_states.counts(self, since_ms)
        return ParkedLag(counts, oldest_parked_ms(self, counts))

    def add_parked(self, lag: Lag, *, named: int = 0) -> None:
        add_parked(self.key_states, self, lag, named)

    def held_retries(self) -> Iterable[tuple[int, int]]:
        heads = [head for head, _, _ in self.key_states.current(self).held()]
        return [(head.attempt, head.due_ms) for head in heads if head.due_ms < STOPPED_MS]


@dataclass
class KeyedPullLogs:
    """Opens the pull logs of groups: see ``PullLogs``. The one place that chooses between the kinds."""

    key_states: KeyStateCache

    def of(self, context: Context, subject: Subject, group: Group) -> list[PullLog]:
        return pull_logs(context, subject, group, self._kind(group))

    def log(self, context: Context, group: Group, source: str, queue: int | None) -> PullLog:
        return self._kind(group)(context, group, context.log(source), queue)

    def in_turn(self, context: Context, subject: Subject, group: Group, logs: Sequence[PullLog]) -> Sequence[PullLog]:
        return in_turn(context, self.key_states, subject, group, logs)

    def first_parts(self, group: Group, logs: Sequence[PullLog]) -> tuple[list[PullLog], list[PullLog]]:
        # In an ordered group only parts that have their turn are among the logs.
        return ([*logs], []) if group.ordered else first_parts(logs)

    def _kind(self, group: Group) -> LogMaker:
        return self._ordered if group.ordered else PullLog

    @cached_property
    def _ordered(self) -> LogMaker:
        return partial(OrderedLog, key_states=self.key_states)


def _parked_again(log: PullLog, row: OrderedRow, order: Order, parsed: ParsedSettlement) -> DecidedRow:
    """Parks the messages that fail, and reserves a row of the dead log for each kind of dead letters."""
    now_ms, group = log.context.clock.now_ms(), log.group
    outcome = settle_in_order(row, parsed, group, group.retry or log.context.settings.retry, now_ms)
    stops = _stops_of(order, outcome.stopped, parsed) if outcome.stopped else order.stops
    parked = msgspec.structs.replace(
        order,
        failed=(*order.failed, *outcome.failed),
        stops=stops,
        suspects=(*order.suspects, *outcome.suspects),
    )
    positions = row.positions()
    targets = [
        (kind, tuple([(positions[index].row_no, positions[index].index) for index in indexes]))
        for kind, indexes in ((ATTEMPTS, outcome.spent), (REJECTED, outcome.rejected))
        if indexes
    ]
    transfers = tuple(
        reserve(
            log.context,
            kind=kind,
            log=group.dead_log,
            picks=picks,
            expires_ms=now_ms + DEAD_RETENTION_MS,
            details=row.details_of(picks, parsed),
        )
        for kind, picks in targets
    )
    # Messages behind one that failed are released with it, also unnamed ones.
    settled = row.settled | parsed.named | {index for index, _, _ in outcome.failed}
    return DecidedRow(msgspec.structs.replace(row, order=parked), settled, transfers)


def _stops_of(
    order: Order, stopped: Sequence[int], parsed: ParsedSettlement
) -> tuple[tuple[int, bool, str | None], ...]:
    """Returns ``Order.stops`` with these messages of the pull, whose details share the room of a row with earlier
    ones."""
    stops = list(order.stops)
    left_bytes = DETAILS_BYTES - sum(len((detail or "").encode()) for _, _, detail in stops)
    for index in stopped:
        detail = parsed.details.get(index)
        left_bytes -= len((detail or "").encode())
        stops.append((index, index in parsed.dead, detail if left_bytes >= 0 else None))
    return tuple(stops)
