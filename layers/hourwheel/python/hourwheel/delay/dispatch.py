"""Hands due messages over. Reserves rows in the target logs, writes one dispatch row that names them, and puts the
rows.

The next owner of the bucket repeats the puts that the last dispatch row names.

``handover.carry_out`` has the same steps, but ends by removing the transfers from its record. A dispatch row stays as
it was written: it is the fence between two owners, and the history by which a cancel learns whether it came in time.
The write that is spared has up to 350 KB; a message that is alone in its step takes 3 writes instead of 4.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeAlias

import msgspec

from hourwheel.cells.moves import refresh_route
from hourwheel.context import Context
from hourwheel.delay.due_messages import QueueName
from hourwheel.delay.held_batches import HeldBatches
from hourwheel.delay.log_calls import for_each_log, reserved, transfer_of
from hourwheel.delay.orphans import register_orphan
from hourwheel.delay.outgoing_batches import AGAIN, DUE, ORPHANED, OutgoingBatch, OutgoingBatches, orphan_target
from hourwheel.delay.ownership import Fenced, Ownership
from hourwheel.delay.timing import pack, unpack_all
from hourwheel.errors import Filled, NotFound, Unavailable
from hourwheel.handover.handover import Transfer, release
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.logs.suspects import with_suspects
from hourwheel.logs.tags import with_tags
from hourwheel.model.log_names import HOME, shared_name
from hourwheel.reach.outages import check_serving, outage_of, unless_given_up
from hourwheel.reach.pauses import paused_with
from hourwheel.registry.registry import Registry
from hourwheel.times import rfc3339

STEP_PICKS = 2_000
_STEP_BATCHES = 100
"""A step hands over at most ``STEP_PICKS`` messages in ``_STEP_BATCHES`` batches. A batch takes two calls, on AWS 11 ms
of a wheel: with 500 of them a herd waited for sixteen seconds. With the longest names, and the open transfers of
``HeldBatches``, its dispatch row stays below 350 KB."""

_OPEN_MS = 1_000
"""How long a step repeats the puts of open transfers: the messages of all other logs wait meanwhile."""

_logger = logging.getLogger("hourwheel")

_Attempt: TypeAlias = tuple[OutgoingBatch, Row] | Unavailable | None
"""What is put again for an open transfer, or the error that prevents it; None if its row has expired."""


@dataclass
class _Step:
    """The batches of one step. ``ready``: with their reservations and rows. ``closed``: their log is sealed. ``held``:
    their cell is out of reach. ``filled``: a reader has filled their row. ``done``: they are handed over. ``open``
    holds the transfers whose cell stopped answering before their row was put."""

    ready: list[tuple[OutgoingBatch, Transfer, Row | None]] = field(default_factory=list)
    closed: list[OutgoingBatch] = field(default_factory=list)
    held: list[OutgoingBatch] = field(default_factory=list)
    filled: list[OutgoingBatch] = field(default_factory=list)
    open: list[Transfer] = field(default_factory=list)
    done: list[OutgoingBatch] = field(default_factory=list)


@dataclass
class Dispatcher:
    """Hands the messages of one bucket over, each step recorded in the dispatch log. For one thread."""

    context: Context
    registry: Registry
    ownership: Ownership
    batches: OutgoingBatches
    held: HeldBatches

    def hand_over(self, slices: Sequence[tuple[QueueName, Sequence[int]]]) -> list[list[int]]:
        """Hands over the due messages at these packed positions in one step, and returns those of each slice that have
        no room in it. Holds those back whose cell is out of reach. Raises ``Fenced``, and the errors of the home store:
        the next owner then finishes what the dispatch log names."""
        picks = [(queue, unpack_all(positions)) for queue, positions in slices]
        batches, rest = self.batches.of(picks, _STEP_BATCHES)
        while batches:
            batches = self._hand_over(batches)
        return [[pack(*pick) for pick in left] for left in rest]

    def prepare(self, positions: Sequence[int]) -> int:
        """Reads the first messages at these packed positions into the cache, before they are due. Returns how many of
        them are there now."""
        return self.batches.prepare(unpack_all(positions))

    def finish(self, transfers: Iterable[Transfer]) -> None:
        """Repeats the puts of these transfers, the last ones of the dispatch log. Hands batches over again whose rows
        were filled."""
        self.held.open = [transfer for transfer in transfers if transfer.log]
        self.put_open()

    def put_open(self) -> None:
        """Repeats the puts of the open transfers, except those in cells that are out of reach. Stops after a second:
        the others come first the next time. Hands batches over again whose rows were filled."""
        if not self.held.open:
            return
        until_ms = self.context.clock.now_ms() + _OPEN_MS
        paused, others = self.held.open_groups()
        step = _Step()
        while others:
            tried, others = others[: self.context.threads], others[self.context.threads :]
            self._try_again(list(chain.from_iterable(tried)), step)
            if self.context.clock.now_ms() >= until_ms:
                break
        self.held.keep_open([*chain.from_iterable(others), *step.open, *chain.from_iterable(paused)])
        repeated = step.filled + [redirected for batch in step.closed for redirected in self._redirected(batch)]
        while repeated:
            repeated = self._hand_over(repeated)

    def _try_again(self, transfers: Sequence[Transfer], step: _Step) -> None:
        """Puts the rows of open transfers again, those of different logs at the same time. Notes in the step what
        stays open, and what has to be handed over again."""
        prepared = [self._prepared(transfer) for transfer in transfers]
        names = [paused_with(transfer.log) for transfer in transfers]
        outcomes = for_each_log(
            self.context, names, lambda number: self._put_again(transfers[number], prepared[number])
        )
        for transfer, attempt, outcome in zip(transfers, prepared, outcomes, strict=True):
            if isinstance(outcome, Unavailable):
                self._note_outage(transfer, outcome, step)
                continue
            self.held.pauses.answered(transfer.log)
            if isinstance(attempt, tuple) and isinstance(outcome, Filled):
                step.filled.append(replace(attempt[0], named=transfer))
            elif isinstance(attempt, tuple) and outcome:
                # An announcement for rows that were there before would wake pulls for nothing.
                self._announce([attempt[0]])

    def _prepared(self, transfer: Transfer) -> "_Attempt":
        """Returns the row of a transfer, ready to be put, or why it cannot be."""
        try:
            if self._expired(transfer):
                return None
            batch = self.batches.of_transfer(transfer)
            row = self.held.rows.get(transfer.token)
            if row is None:
                row = self._row(batch, transfer.at_ms, transfer.expires_ms, transfer.log)
                self.held.keep_row(transfer, row)
            return batch, row
        except Unavailable as error:
            return error

    def _put_again(self, transfer: Transfer, attempt: "_Attempt") -> bool:
        """Puts the row of a transfer; returns False if it was there. Raises ``Filled`` if nobody reads it there."""
        if isinstance(attempt, Unavailable):
            raise attempt
        if attempt is None:
            return False
        if self._trimmed(transfer):
            # A filler was in the row and has expired: nobody reads below the trim mark, so the batch goes elsewhere.
            # Or the batch was in the row and has expired just now: then nothing is left to do.
            if transfer.expires_ms > self.context.clock.now_ms():
                raise Filled(transfer.log)
            return False
        return self._put(self.context, transfer, attempt[1])

    def _note_outage(self, transfer: Transfer, error: Unavailable, step: _Step) -> None:
        """Leaves a transfer open whose log did not answer. If its cell was given up, its row is lost: nothing can be
        put there, as in a sealed log."""

        def fail() -> bool:
            raise error

        try:
            unless_given_up(self.context, transfer.log, fail, True)
        except Unavailable:
            self.held.pauses.refused(transfer.log, error)
            step.open.append(transfer)
            return
        if transfer.expires_ms > self.context.clock.now_ms():
            step.closed.append(replace(self.batches.of_transfer(transfer), named=transfer))

    def _expired(self, transfer: Transfer) -> bool:
        """Returns whether the transfer's row has expired and is trimmed."""
        return transfer.expires_ms <= self.context.clock.now_ms() and self._trimmed(transfer)

    def _trimmed(self, transfer: Transfer) -> bool:
        log = self.context.brief_log(transfer.log)
        return transfer.row_no < log.trimmed() and log.get(transfer.row_no) is None

    def _hand_over(self, batches: Sequence[OutgoingBatch]) -> list[OutgoingBatch]:
        """Hands the batches over in one step. Returns those to hand over again, because their row was filled or their
        log sealed. Holds those back whose cell is out of reach."""
        at_ms = self.ownership.time()
        # Before the step is written: the sweeper must know the log of orphans once a dispatch row may name it.
        for log in dict.fromkeys(batch.target.log for batch in batches if batch.target.kind == ORPHANED):
            register_orphan(self.context, log)
        rows, held = self._rows(batches, at_ms)
        # A transaction may run more than once: each run begins with a step of its own.
        step = self.context.atomically(
            lambda context: self._taken(context, rows, at_ms, _Step(held=list(held))),
            [HOME, *(batch.target.log for batch in batches)],
        )
        return self._after(step, batches)

    def _taken(
        self, context: Context, rows: Sequence[tuple[OutgoingBatch, Row | None]], at_ms: int, step: _Step
    ) -> _Step:
        """Takes a step: reserves rows, writes the dispatch row that names them, and puts them."""
        self._reserve(context, rows, at_ms, step)
        if step.ready:
            # The row is written before any of the puts below: a wheel that replaces this one finds there which rows it
            # may have stored.
            self._append(context, step)
        # After the dispatch row. A put that is lost here is repeated by the next owner of the bucket.
        self._put_rows(context, step)
        if context.later is not None:
            for name in {batch.target.subject for batch in step.done if batch.target.kind == DUE}:
                context.early_wakeups.announce_early(name)
        return step

    def _append(self, context: Context, step: _Step) -> None:
        """Writes the dispatch row of the step. Releases its reservations if another wheel has replaced this one."""
        # The next owner reads the last row: it would not find a transfer that only an earlier row names.
        named_before = [batch.still_named for batch in (*step.closed, *step.held)]
        transfers = [transfer for _, transfer, _ in step.ready]
        named = (*transfers, *self.held.open, *(transfer for transfer in named_before if transfer))
        try:
            self.ownership.append(context, named)
        except Fenced:
            release(context, [transfer for transfer in transfers if transfer.log])
            raise

    def _rows(
        self, batches: Sequence[OutgoingBatch], at_ms: int
    ) -> tuple[list[tuple[OutgoingBatch, Row | None]], list[OutgoingBatch]]:
        """Returns the batches with their rows, and those whose log is out of reach."""
        rows: list[tuple[OutgoingBatch, Row | None]] = []
        held: list[OutgoingBatch] = []
        busy = self.held.busy
        for batch in batches:
            log = batch.target.log
            # A pause that ends meanwhile lets no batch pass one that was held.
            is_behind = self.held.is_behind(batch) or any(log == other.target.log for other in held)
            if not log or not (is_behind or self.held.waits(log, busy)):
                with self.held.pauses.tried(log):
                    rows.append((batch, self._row(batch, at_ms, batch.expires_ms(at_ms), log) if log else None))
                    continue
            held.append(batch)
        return rows, held

    def _reserve(
        self, context: Context, rows: Sequence[tuple[OutgoingBatch, Row | None]], at_ms: int, step: "_Step"
    ) -> None:
        """Reserves a row for each batch. Those of different logs are reserved at the same time."""
        outcomes = for_each_log(
            context,
            [batch.target.log for batch, _ in rows],
            lambda number: reserved(context, rows[number][0]),
        )
        for (batch, row), outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, Reservation):
                step.ready.append((batch, transfer_of(context, batch, at_ms, outcome), row))
            elif isinstance(outcome, Unavailable):
                self._refused(context, batch.target.log, outcome)
                step.held.append(batch)
            else:
                step.closed.append(batch)

    def _put_rows(self, context: Context, step: "_Step") -> None:
        """Puts the rows of the transfers. Those of different logs are put at the same time."""

        def put(number: int) -> None:
            _, transfer, row = step.ready[number]
            if row is not None:
                self._put(context, transfer, row)

        logs = [transfer.log for _, transfer, _ in step.ready]
        for (batch, transfer, row), outcome in zip(step.ready, for_each_log(context, logs, put), strict=True):
            if isinstance(outcome, Filled):
                step.filled.append(replace(batch, named=transfer))
            elif isinstance(outcome, Unavailable):
                self._refused(context, transfer.log, outcome)
                step.open.append(transfer)
                if row is not None:
                    self.held.keep_row(transfer, row)
            else:
                step.done.append(batch)

    def _refused(self, context: Context, log: str, error: Unavailable) -> None:
        """Pauses a log, to which a call did not succeed. Raises errors within a transaction of the home store."""
        if context.later is not None:
            outage_of(error)
        self.held.pauses.refused(log, error)

    def _after(self, step: "_Step", batches: Sequence[OutgoingBatch]) -> list[OutgoingBatch]:
        """Remembers the transfers that a step of these batches has left open. Returns the batches to hand over
        again."""
        self.held.open += step.open
        held = set(step.held)
        for batch in batches:
            if batch in held:
                self._hold(batch)
        refused = {transfer.log for transfer in step.open}.union(batch.target.log for batch in held)
        for batch in step.done:
            if batch.target.log not in refused:
                self.held.pauses.answered(batch.target.log)
            self.batches.row_cache.drop(batch.picks)
        self._announce(step.done)
        return step.filled + [redirected for batch in step.closed for redirected in self._redirected(batch)]

    def _hold(self, batch: OutgoingBatch) -> None:
        """Keeps a batch whose cell is out of reach. A batch that the dispatch log names stays an open transfer: nobody
        would look for its messages in the schedule log."""
        named = batch.still_named
        if named is None:
            self.held.hold(batch)
        else:
            self.held.open.append(named)

    def _put(self, context: Context, transfer: Transfer, row: Row) -> bool:
        """Puts the row of a transfer; returns False if it was there. Raises ``CellUnavailable`` also for a row that is
        stored in a cell which is off line by then."""
        put = context.brief_log(transfer.log).put(transfer.reservation, row, transfer.token)
        check_serving(context, [transfer.log])
        return put

    def _row(self, batch: OutgoingBatch, at_ms: int, expires_ms: int, log: str) -> Row:
        """Returns the row that contains the batch. Every caller builds it with equal messages, so that a repeated put
        changes nothing."""
        messages = batch.messages
        if batch.target.kind == ORPHANED:
            died_at = rfc3339(at_ms)
            messages = [
                msgspec.structs.replace(message, died_at=died_at, reason="subject-deleted") for message in messages
            ]
        row = self.context.build_row(log, messages, at_ms=at_ms, expires_ms=expires_ms)
        if batch.target.kind == AGAIN:
            return with_suspects(row, messages)
        if batch.target.kind != DUE:
            return row
        return with_tags(row, log, messages, self.context.settings.summary_bytes)

    def _redirected(self, batch: OutgoingBatch) -> list[OutgoingBatch]:
        """Returns the messages of a batch with other targets: its log was sealed, because its queue has moved or its
        subject or group was deleted."""
        name = batch.destination.subject
        if batch.target.kind != DUE:
            self.registry.forget(name)
            return [replace(batch, target=orphan_target(batch.destination))]
        with self.held.pauses.tried(batch.target.log):
            with suppress(NotFound):
                refresh_route(self.registry, self.registry.subject(name))
            return self._rerouted(batch)
        self._hold(batch)
        return []

    def _rerouted(self, batch: OutgoingBatch) -> list[OutgoingBatch]:
        """Returns the messages of a batch by the routes that their queues have now."""
        batches: list[OutgoingBatch] = []
        rest = batch.picks
        # The messages of one queue go to few others, so that the batches of all steps fit into one dispatch row.
        while rest:
            more, (rest,) = self.batches.of([(batch.queue, rest)], _STEP_BATCHES)
            batches += more
        return [replace(redirected, named=batch.named) for redirected in batches]

    def _announce(self, batches: Sequence[OutgoingBatch]) -> None:
        """Wakes the pulls that wait for the messages, counts them, and logs orphans for the operator."""
        if self.context.wakeup_queues is not None:
            # Each announcement looks at the record of its subject, which lists the dozing groups.
            self.registry.read_ahead(batch.target.subject for batch in batches if batch.target.kind in (DUE, AGAIN))
        for batch in batches:
            target = batch.target
            meter = self.context.meter
            if target.kind in (DUE, AGAIN):
                group = None if target.group is None else shared_name(target.group)
                self.context.wakeups.announce(target.subject, group)
                meter.record("Dispatched", len(batch.picks))
                if batch.earliest_ms:
                    late_ms = max(0, self.context.clock.now_ms() - batch.earliest_ms)
                    meter.record("DispatchLateness", late_ms, unit="Milliseconds")
            elif target.kind == ORPHANED:
                meter.record("OrphanedMessages", len(batch.picks))
                _logger.error(
                    "%d messages of subject %s, deleted meanwhile, went to %s",
                    len(batch.picks),
                    target.subject,
                    target.log,
                )
