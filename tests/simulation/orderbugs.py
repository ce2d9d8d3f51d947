"""Plants bugs of ordered groups."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.logs.cas import CasRecord, CasResult, Versioned
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.routes import Mapping
from hourwheel.ordered import ordered_log
from hourwheel.ordered import parts as ordered_parts
from hourwheel.ordered.key_state_cache import KeyStateCache
from hourwheel.ordered.key_states import InFlight, KeyStates
from hourwheel.ordered.parts import _Parts
from hourwheel.ordered.selection import OrderedSelection
from hourwheel.ordered.settle import OrderedOutcome, settle_in_order
from hourwheel.ordered.snapshots import Snapshots
from hourwheel.ports.storage import Record
from hourwheel.pull_log.ordered_rows import OrderedRow, Parked
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.pull_log import PullLog
from tests.simulation.bugs import Bug, registrar
from tests.simulation.draws import with_cells
from tests.simulation.faults import Faults
from tests.simulation.plan import Plan

ORDERED: list[Bug] = []
planted = registrar(ORDERED)


def in_order(plan: Plan) -> Plan:
    return replace(plan, ordered=True, consumers=3, calls=350, retention_seconds=259_200, quiet_days=False)


def _many_processes(plan: Plan) -> Plan:
    return replace(in_order(plan), together=False, transactional=False, faults=Faults(crash=0.03, lose=0.1, pause=0.03))


@planted(sharpen=in_order)
def a_key_in_flight_is_handed_out() -> Iterator[None]:
    def set_open(self: KeyStates, row_no: int, flight: InFlight) -> None:
        self.open[row_no] = flight

    with patch.object(KeyStates, "_set_open", set_open), patch.object(KeyStates, "_land", lambda *_: None):
        yield


@planted(sharpen=in_order)
def a_message_overtakes_parked_ones_of_its_key() -> Iterator[None]:
    def look_ahead(self: OrderedSelection, covered: Any) -> None:
        self._free = {*self.state.parked}
        real(self, covered)

    real = OrderedSelection._look_ahead
    with patch.object(OrderedSelection, "_look_ahead", look_ahead):
        yield


@planted(sharpen=in_order)
def a_parked_message_is_forgotten_by_the_next_claim() -> Iterator[None]:
    def follow(self: KeyStates, row_no: int, row: OrderedRow, *rest: Any) -> None:
        before = dict(self.parked)
        real(self, row_no, row, *rest)
        if row.order is not None and not row.order.parked:
            self.parked = {digest: entries for digest, entries in self.parked.items() if digest in before}
            self.later = {digest: later for digest, later in self.later.items() if digest in before}
            self.retries = {digest: due_ms for digest, due_ms in self.retries.items() if digest in self.parked}
            self.total = sum(map(self.parked_of, self.parked))

    real = KeyStates.follow
    with patch.object(KeyStates, "follow", follow):
        yield


@planted(sharpen=in_order)
def a_key_is_free_before_its_retry() -> Iterator[None]:
    def decide(row: OrderedRow, *rest: Any) -> OrderedOutcome:
        decided = settle_in_order(row, *rest)
        behind = [entry for entry in decided.failed if entry[1] == row.messages()[entry[0]][1].attempt]
        decided.failed = [entry for entry in decided.failed if entry not in behind]
        return decided

    with patch.object(ordered_log, "settle_in_order", decide):
        yield


def _slow_retries(plan: Plan) -> Plan:
    return replace(in_order(plan), retry=RetryPolicy(first_seconds=2), consumers=2, calls=500)


@planted(sharpen=_slow_retries)
def a_retry_goes_behind_what_is_parked() -> Iterator[None]:
    def park(self: KeyStates, digest: bytes, parked: Parked) -> None:
        self.parked[digest] = (*self.parked.get(digest, ()), parked)
        self.total += 1

    with patch.object(KeyStates, "_park", park):
        yield


@planted(sharpen=_slow_retries)
def a_retry_is_handed_out_before_its_time() -> Iterator[None]:
    def ready(self: KeyStates, now_ms: int, most: int) -> Any:
        return real(self, now_ms + 60_000, most)

    real = KeyStates.ready
    with patch.object(KeyStates, "ready", ready):
        yield


@planted(sharpen=_many_processes)
def a_failed_message_is_forgotten_by_a_snapshot() -> Iterator[None]:
    def snapshot(self: KeyStates, now_ms: int) -> Any:
        whole = real(self, now_ms)
        return msgspec.structs.replace(whole, parked=tuple(key for key in whole.parked if not key.first))

    real = KeyStates.snapshot
    with patch.object(KeyStates, "snapshot", snapshot):
        yield


@planted(sharpen=_many_processes)
def an_open_row_is_forgotten_by_a_new_process() -> Iterator[None]:
    def snapshot(self: KeyStates, now_ms: int) -> Any:
        return msgspec.structs.replace(real(self, now_ms), open=())

    real = KeyStates.snapshot
    with patch.object(KeyStates, "snapshot", snapshot):
        yield


def _seeks(plan: Plan) -> Plan:
    return replace(_many_processes(plan), moves=("seek",), operators=2)


@planted(sharpen=_seeks)
def a_message_that_failed_after_a_seek_is_parked_twice() -> Iterator[None]:
    with patch("hourwheel.ordered.key_states.InFlight.parks", lambda self, parked: True):
        yield


@planted(sharpen=in_order)
def a_message_behind_a_failed_one_is_acknowledged() -> Iterator[None]:
    def decide(row: OrderedRow, asked_for: Any, *rest: Any) -> OrderedOutcome:
        decided = settle_in_order(row, asked_for, *rest)
        asked = asked_for.retried | asked_for.released
        decided.failed = [entry for entry in decided.failed if entry[0] in asked]
        return decided

    with patch.object(ordered_log, "settle_in_order", decide):
        yield


def _leaves(plan: Plan) -> Plan:
    return replace(_many_processes(plan), moves=("leave",), operators=2)


@planted(sharpen=_leaves)
def a_claim_that_was_answered_late_is_not_handed_out() -> Iterator[None]:
    """Beside consumers that leave: a claim that one of them gave back is not handed out either, and rightly so."""

    def swap(self: CasRecord[Any], before: Versioned[Any] | None, value: Any, **how: Any) -> CasResult[Any]:
        if not isinstance(value, OrderedRow) or before is not None:
            return real(self, before, value, **how)
        record = Record(msgspec.msgpack.encode(value), how["token"], how["expires_ms"])
        refused = self.store.put(self.key, record, expect=None)
        if refused is None:
            return CasResult(True, Versioned(value, record.token))
        return CasResult(False, self.opened(refused.current))

    real = CasRecord.swap
    with patch.object(CasRecord, "swap", swap):
        yield


def _few_parked(plan: Plan) -> Plan:
    return replace(_slow_retries(plan), max_parked=1)


@planted(sharpen=_few_parked)
def more_messages_are_parked_than_a_queue_may_have() -> Iterator[None]:
    with patch.object(KeyStates, "room", 1_000_000):
        yield


def _few_held(plan: Plan) -> Plan:
    return replace(_slow_retries(plan), max_held=1)


@planted(sharpen=_few_held)
def a_queue_goes_on_beside_more_held_keys_than_the_group_allows() -> Iterator[None]:
    with patch.object(KeyStates, "held_keys", 0):
        yield


@planted(sharpen=_slow_retries)
def a_key_forgets_its_later_messages_when_the_first_ones_are_taken() -> Iterator[None]:
    def empty(self: KeyStates, digest: bytes) -> None:
        self.parked.pop(digest, None)
        later = self.later.pop(digest, None)
        self.total -= later.total if later is not None else 0

    with patch.object(KeyStates, "_empty", empty):
        yield


@planted(sharpen=_slow_retries)
def a_snapshot_forgets_the_later_messages_of_a_key() -> Iterator[None]:
    def snapshot(self: KeyStates, now_ms: int) -> Any:
        whole = real(self, now_ms)
        parked = tuple(msgspec.structs.replace(key, blocks=key.blocks[:1]) for key in whole.parked)
        return msgspec.structs.replace(whole, parked=parked)

    real = KeyStates.snapshot
    with patch.object(KeyStates, "snapshot", snapshot):
        yield


@planted(sharpen=_many_processes)
def a_snapshot_is_saved_without_its_last_page() -> Iterator[None]:
    def put(self: Snapshots, row_no: int, token: bytes, pages: Any) -> tuple[str, ...]:
        return real(self, row_no, token, pages[:-1])

    real = Snapshots._put
    with patch.object(Snapshots, "_put", put):
        yield


@planted(sharpen=_many_processes)
def pages_of_the_last_snapshot_are_removed() -> Iterator[None]:
    def remove_pages(self: Snapshots, *, below: str | None) -> None:
        real(self, below=None)

    real = Snapshots._remove_pages
    with patch.object(Snapshots, "_remove_pages", remove_pages):
        yield


def _parts(plan: Plan) -> Plan:
    moves = ("move", "move", "queues")
    return replace(with_cells(in_order(plan), 1), moves=moves, operators=2, groups=("a",), faults=Faults(crash=0.02))


@planted(sharpen=_parts)
def a_part_begins_before_the_one_before_it_is_done() -> Iterator[None]:
    def begun(self: _Parts, queue: int, mapping: Mapping) -> bool:
        return all(
            self._is_done(earlier, name)
            for other in range(self.subject.queues)
            for earlier, name in self.subject.parts(other)
            if earlier.era < mapping.era
        )

    with patch.object(_Parts, "begun", begun):
        yield


@planted(sharpen=_parts)
def a_key_goes_on_in_an_added_queue_before_the_others_are_done() -> Iterator[None]:
    def begun(self: _Parts, queue: int, mapping: Mapping) -> bool:
        parts = self.subject.parts(queue)
        return all(self._is_done(earlier, name) for earlier, name in parts if earlier.epoch < mapping.epoch)

    with patch.object(_Parts, "begun", begun):
        yield


def _slow_writers(plan: Plan) -> Plan:
    return replace(_parts(plan), faults=Faults(pause=0.05), producers=3, transactional=False)


@planted(sharpen=_slow_writers)
def a_part_is_left_though_rows_at_its_end_are_missing() -> Iterator[None]:
    def settled_rows(key_states: KeyStateCache, log: PullLog) -> int | None:
        rows = real(key_states, log)
        return rows if rows is None else max(rows, log.mapping.rows)

    real = ordered_parts.settled_rows
    with patch.object(ordered_parts, "settled_rows", settled_rows):
        yield


@planted(sharpen=in_order)
def a_message_behind_one_that_failed_stays_leased_if_it_is_not_named() -> Iterator[None]:
    def settled(row: OrderedRow, asked: ParsedSettlement, *rest: Any) -> OrderedOutcome:
        outcome = settle_in_order(row, asked, *rest)
        return replace(outcome, failed=[failed for failed in outcome.failed if failed[0] in asked.named])

    with patch.object(ordered_log, "settle_in_order", settled):
        yield
