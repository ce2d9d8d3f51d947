"""Judges the history of one pull log: the messages that a group got, and the settlement of each."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import msgspec

from hourwheel.handover.copies import ATTEMPTS, RELEASED, RETRY
from hourwheel.handover.handover import Transfer
from hourwheel.pull_log.records import CLOSED, EXPIRED, OPEN, PASSED, SOUGHT, UNREADABLE, Checkpoint, Position, PullRow
from tests.simulation import filters
from tests.simulation.facts import LogName, Promiser, RowFact
from tests.simulation.kept import acks_all, check_ahead, check_goes_on, check_keeps, check_released, renumbered
from tests.simulation.world import Verb, Violation

if TYPE_CHECKING:
    from tests.simulation.audit import StoreAudit


@dataclass
class PullFact:
    """A claim: the positions of its messages in the source, and the outcome of each settled one."""

    value: PullRow
    positions: list[tuple[int, int]]
    at: int = 0
    outcomes: dict[int, str] = field(default_factory=dict)
    base: int = 0
    """The messages of earlier claims, which the row has grown beyond."""

    def decided(self) -> frozenset[int]:
        """Returns the messages that are settled."""
        if self.value.state != OPEN:
            return frozenset(range(len(self.positions)))
        return self.value.settled | frozenset(range(self.base))

    @property
    def released(self) -> bool:
        """Returns whether each message of the last claim was given back. In an ordered group, those behind the first
        one of their key go back with it."""
        outcomes = {self.outcomes.get(index) for index in range(self.base, self.value.size)}
        return RELEASED in outcomes <= {RELEASED, "behind"}

    @property
    def leased(self) -> int:
        return len(self.value.unsettled()) if self.value.state == OPEN else 0


@dataclass
class PullHistory:
    audit: "StoreAudit"
    partition: str
    member: str
    source: str
    origin: int
    next_row: int = 0
    end: Position = field(init=False)
    pulls: dict[int, PullFact] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    checkpoint: int = 0
    kind: ClassVar[type[PullRow]] = PullRow

    def __post_init__(self) -> None:
        self.end = Position(self.origin)

    @property
    def unserved(self) -> int:
        """Returns the number of parked messages that nobody is handed at the end of a run."""
        return 0

    def stored(self, verb: Verb, row: int, value: PullRow) -> None:
        before, gone = self.pulls.get(row), self.audit.gone(self.source, self.member)
        if gone:
            self.check_erased(verb, row, value)
        if before is not None and before.value.claim == value.claim:
            if not gone:
                self._changed(verb, row, before, value)
            return
        if before is not None and (before.value.kept or row == self.next_row - 1) and not gone:
            goes_on = check_goes_on if before.value.kept else PullHistory._grown
            goes_on(self, verb, row, before, value)
            return
        if row != self.next_row and not gone:
            raise Violation("4", f"{self.partition}: pull row {row} came, {self.next_row} is next")
        if value.outcome == SOUGHT:
            self._sought(verb, value)
            self.pulls[row] = PullFact(value, [])
        else:
            covered = filters.covered(value)
            self.audit.rules.check_claim(f"{self.partition}: pull row {row}", verb, value)
            if not gone:
                self._check_claim(row, value, covered)
                check_keeps(self, verb, row, value)
            self.pulls[row] = PullFact(value, covered, self.audit.world.calls)
            if value.outcome != PASSED:
                self.audit.rules.check_paused(
                    f"{self.partition}: pull row {row}", verb, LogName.parse(self.source), self.member
                )
                self.open.add(row)
                self.audit.rules.check_in_flight(self, row, verb)
                self.audit.rules.check_rate(self, row, verb)
                verb.claims.append((self.partition, row))
            elif value.covered:
                raise Violation("1", f"{self.partition}: pull row {row} passes over messages")
        self.next_row, self.end = row + 1, value.end

    def check_erased(self, verb: Verb, row: int, value: PullRow) -> None:
        """Checks that a process which does not know of the deletion of a group hands out none of its messages again
        once the group's logs are erased. It may settle a claim whose row the store has kept, and claim behind it."""
        known = self.pulls.get(row)
        if known is not None and known.value.claim == value.claim:
            return
        if known is not None and known.value.kept and value.base == known.value.size:
            return
        grown = known is not None and 0 < value.base == known.value.size
        first = known.value.end if known is not None and grown else value.first
        if self.audit.erased_before(verb, self.source, self.member) and first < self.end and value.covered:
            raise Violation(
                "5", f"{self.partition}: pull row {row} of the deleted group begins at {first}, before {self.end}"
            )

    def _grown(self, verb: Verb, row: int, fact: PullFact, value: PullRow) -> None:
        """Checks that the last row acknowledges its claim as the verb asks, and claims the messages behind it."""
        before, where = fact.value, f"{self.partition}: pull row {row}"
        if before.state != OPEN or before.settled or before.is_final:
            raise Violation("5", f"{where} has another claim, after it was settled or its end was final")
        chosen, asked = verb.details.get("chosen"), verb.details.get("row")
        if asked != (self.partition, row) or chosen is None or not acks_all(chosen, before.size - fact.base):
            raise Violation("5", f"{where} grows, and its claim was not acknowledged: {chosen} of {asked}")
        if (before.first, before.counts, before.consumer) != (
            value.first,
            value.counts[: len(before.counts)],
            value.consumer,
        ):
            raise Violation("3", f"{where} covers something else")
        if value.state != OPEN or value.settled or value.last or value.transfers != before.transfers:
            raise Violation("5", f"{where} grows, and its new claim is settled")
        if value.base != before.size:
            raise Violation("5", f"{where} grows from message {value.base} on, it had {before.size}")
        part = msgspec.structs.replace(value, first=before.end, counts=value.counts[len(before.counts) :])
        covered = filters.covered(part)
        self.audit.rules.check_claim(where, verb, value)
        self._check_claim(row, part, covered)
        self.audit.rules.check_paused(where, verb, LogName.parse(self.source), self.member)
        for index in range(fact.base, before.size):
            fact.outcomes[index] = "ack"
        verb.settled.append((self.partition, row))
        fact.value, fact.positions, fact.base = value, [*fact.positions, *covered], before.size
        fact.at = self.audit.world.calls
        self.audit.world.grown += 1
        verb.claims.append((self.partition, row))
        self.end = value.end

    def checkpointed(self, before: Checkpoint | None, checkpoint: Checkpoint) -> None:
        lowest = min(self.open, default=self.next_row)
        # A pull that knew the group before its deletion may claim again in an erased log: nobody reads its checkpoint.
        gone = self.audit.gone(self.source, self.member)
        if checkpoint.row_no > lowest and not gone:
            raise Violation("12", f"{self.partition}: the checkpoint {checkpoint.row_no} passes the open row {lowest}")
        if checkpoint.erased:
            # An erasure that is repeated once its mark has expired writes another one, whose row means nothing.
            if not gone:
                raise Violation("12", f"{self.partition} is marked as erased, its group was not deleted")
            return
        if before is not None and before.erased:
            raise Violation("12", f"{self.partition}: a checkpoint replaces the mark of the erasure")
        if checkpoint.row_no < self.checkpoint:
            raise Violation(
                "12", f"{self.partition}: the checkpoint fell from {self.checkpoint} to {checkpoint.row_no}"
            )
        last = self.pulls.get(checkpoint.row_no - 1)
        if last is not None and checkpoint.position != last.value.end and not gone:
            raise Violation("12", f"{self.partition}: the checkpoint begins at {checkpoint.position}, not at its row")
        self.checkpoint = checkpoint.row_no

    def pending(self) -> list[str]:
        """Returns a text for each claim and row that is still to be handed out or settled."""
        if self.audit.gone(self.source, self.member):
            return []
        waiting = [f"pull row {row} is open" for row in sorted(self.open)]
        for number, fact in sorted(self.audit.rows(self.source).items()):
            # A damaged row is not handed out, but it has to be passed.
            live = not fact.row.filler and fact.row.live(self.audit.soon)
            if live and filters.waits(self, number, fact, self.end):
                waiting.append(f"row {number} of {self.source} waits")
        return waiting

    def _check_claim(self, pull: int, value: PullRow, covered: list[tuple[int, int]]) -> None:
        """Checks that a pull hands no message out twice and passes none over."""
        if value.first < self.end:
            raise Violation("4", f"{self.partition}: pull row {pull} hands out {value.first} again, before {self.end}")
        if covered and not Position(*covered[-1]) < value.end:
            raise Violation("3", f"{self.partition}: pull row {pull} hands out messages beyond its end {value.end}")
        beside = covered if len(covered) > 1 and LogName.parse(self.source).kind == "retry" else []
        if any(self.audit.picked(self.source, position)[0].suspect for position in beside):
            raise Violation("4", f"{self.partition}: pull row {pull} has a suspect beside other messages")
        self._check_end_seq(pull, value)
        if filters.filters_of(self.audit, self.source, self.member) != [None]:
            filters.check_filtered(self, pull, value, covered)
            return
        last = value.end.row_no if value.end.index else value.end.row_no - 1
        for number in range(self.end.row_no, last + 1):
            step = number - value.first.row_no
            count = value.counts[step] if 0 <= step < len(value.counts) else 0
            low = self.end.index if number == self.end.row_no else 0
            self._passed(pull, number, low, value.end, count)
            if count and step == 0 and value.first.index != low:
                raise Violation("1", f"{self.partition}: pull row {pull} passes over the start of row {number}")

    def _check_end_seq(self, pull: int, value: PullRow) -> None:
        """Checks that a claim ends at the sequence of the next message, if a stored row states it."""
        rows, row = self.audit.rows(self.source), value.end.row_no
        if value.end.index:
            expected = rows[row].row.first_seq + value.end.index
        else:
            before = rows.get(row - 1)
            # A filler may have replaced an expired row.
            if before is None or before.row.filler or self.audit.expired(before) or row == self.end.row_no:
                return
            expected = before.row.first_seq + before.row.count
        if value.end_seq != expected:
            raise Violation("4", f"{self.partition}: pull row {pull} ends at {value.end_seq}, not at {expected}")

    def _passed(self, pull: int, number: int, low: int, end: Position, count: int) -> None:
        fact = self.audit.rows(self.source).get(number)
        if fact is None:
            if number >= self.audit.trim_marks.get(self.source, 0):
                raise Violation(
                    "1", f"{self.partition}: pull row {pull} passes row {number}, whose pending change is open"
                )
            wanted = 0
        else:
            wanted = (end.index if number == end.row_no else fact.row.count) - low
        if count != wanted and not (count == 0 and fact is not None and self.audit.expired(fact)):
            raise Violation("1", f"{self.partition}: pull row {pull} takes {count} of {wanted} from row {number}")

    def _sought(self, verb: Verb, value: PullRow) -> None:
        """Checks that a seek passes over no message that it was requested to keep, among those stored when it began."""
        details = verb.details
        if value.first.row_no > self.audit.totals(self.source).rows:
            raise Violation(
                "1", f"{self.partition}: the seek {details} passes row {value.first.row_no - 1}, yet to come"
            )
        for number, fact in sorted(self.audit.rows(self.source).items()):
            ahead = number >= value.first.row_no
            if ahead or fact.at > verb.at or fact.row.filler or self.audit.expired(fact):
                continue
            if details.get("to") == "start" or self._after(number, fact, details):
                raise Violation("1", f"{self.partition}: the seek {details} passes row {number}")
        if details.get("to") == "start":
            facts, mark = self.audit.rows(self.source), self.audit.trim_marks.get(self.source, 0)
            missing = [number for number in range(mark, value.first.row_no) if number not in facts]
            if missing:
                raise Violation("1", f"{self.partition}: the seek to the start passes rows {missing}, still open")

    def _after(self, number: int, fact: RowFact, details: dict[str, object]) -> bool:
        offset, at_ms = details.get("offset"), details.get("at_ms")
        if isinstance(offset, int):
            return fact.row.first_seq + fact.row.count > offset
        if isinstance(at_ms, int):
            rows = self.audit.rows(self.source)
            behind = [other for position, other in rows.items() if position >= number and not other.row.filler]
            # Rows are searched by bisection: a later row must not be older.
            return all(other.row.at_ms >= at_ms for other in behind)
        return False

    def _changed(self, verb: Verb, row: int, fact: PullFact, value: PullRow) -> None:
        was, kept = fact.decided(), fact.value.kept
        before, fact.value = fact.value, value
        where = f"{self.partition}: pull row {row}"
        if value.base != fact.base or (before.is_final and not value.is_final):
            raise Violation("5", f"{where} may grow again, or counts from {value.base} instead of {fact.base}")
        if any(getattr(before, name) != getattr(value, name) for name in ("first", "picks", "end", "consumer")):
            raise Violation("3", f"{where} covers something else")
        if value.counts != before.counts:
            self._check_excluded(where, before, value)
            was, kept = renumbered(fact, filters.covered(value), was, kept)
        if value.outcome == UNREADABLE and value.size:
            raise Violation("1", f"{where} is closed as unreadable with {value.size} messages")
        now = fact.decided()
        check_ahead(where, before, value, kept)
        if before.state == CLOSED or not was <= now:
            raise Violation("5", f"{where} was settled and changed")
        if before.state != OPEN and (value.state == OPEN or value.outcome != before.outcome):
            raise Violation("5", f"{where} was settled and is settled otherwise")
        self.audit.rules.check_lease(where, verb, before, value)
        self._check_leave(where, verb, value, now - was - kept)
        self._settled(verb, row, fact, before, now - was)
        check_released(where, fact.outcomes, (now - was) & kept)
        if value.state == CLOSED:
            self.open.discard(row)

    def _check_excluded(self, where: str, before: PullRow, value: PullRow) -> None:
        """Checks that a claim loses no messages but those that are damaged."""
        rows, first = self.audit.rows(self.source), before.first.row_no
        for number, (was, count) in enumerate(zip(before.counts, value.counts, strict=True), first):
            if count != was and (count or not rows[number].damaged):
                raise Violation("3", f"{where} covers {count} messages of row {number}, it covered {was}")

    def _check_leave(self, where: str, verb: Verb, value: PullRow, fresh: frozenset[int]) -> None:
        """Checks that a leave settles the pulls of its consumer, and no others; it may finish leases that are over."""
        consumer = verb.details.get("consumer")
        if verb.name == "leave" and fresh and value.outcome != EXPIRED and value.consumer != consumer:
            raise Violation("5", f"{where}: a leave of {consumer} settles a pull of {value.consumer}")

    def _settled(self, verb: Verb, row: int, fact: PullFact, before: PullRow, fresh: frozenset[int]) -> None:
        value, where = fact.value, f"{self.partition}: pull row {row}"
        name = LogName.parse(self.source)
        head = f"{name.subject}~{name.generation}"
        targets = frozenset({f"{head}/retry/{self.member}", f"{head}/dead/{self.member}"})
        address = (name.subject, name.generation, self.member)
        self.audit.keep_promises(Promiser(before.transfers, value.transfers, self.source, targets, address))
        self._check_waits(verb, row, fact, before)
        started = {transfer.token for transfer in before.transfers}
        picked: dict[tuple[int, int], str] = {}
        for transfer in value.transfers:
            if transfer.token not in started:
                picked |= dict.fromkeys(transfer.picks, transfer.kind)
        indexes = {fact.positions[index]: index for index in fresh}
        if not picked.keys() <= indexes.keys():
            raise Violation("9", f"{where} hands over messages that it did not settle")
        ended = value.outcome == EXPIRED
        for position, index in indexes.items():
            fact.outcomes[index] = picked.get(position, "ack")
        if ended and fresh:
            if self.audit.soon < before.lease_until_ms:
                raise Violation("4", f"{where} was ended before its lease")
            for position in sorted(indexes.keys() - picked.keys()):
                if not self.audit.expired(self.audit.picked(self.source, position)[1]):
                    raise Violation("1", f"{where}: message {position} was dropped when the lease ended")
            self._check_ended(where, value, picked)
        elif fresh and not fresh <= before.kept:
            verb.settled.append((self.partition, row))
            self._check_taken(verb, where, picked, indexes)

    def _check_ended(self, where: str, value: PullRow, picked: dict[tuple[int, int], str]) -> None:
        """Checks that the end of a lease counts an attempt of a suspect that was pulled alone, and of no other
        message."""
        for position, kind in picked.items():
            message, _ = self.audit.picked(self.source, position)
            alone = message.suspect and value.claimed == 1
            if (kind in (RETRY, ATTEMPTS)) != alone:
                raise Violation("4", f"{where}: the lease of {message.body} ended, which was alone: {alone}, as {kind}")

    def _check_taken(
        self, verb: Verb, where: str, picked: dict[tuple[int, int], str], indexes: dict[tuple[int, int], int]
    ) -> None:
        """Checks that a pusher acknowledges exactly the messages that the target has taken, and a leave none."""
        if verb.name == "leave" and (picked.keys() != indexes.keys() or set(picked.values()) != {RELEASED}):
            raise Violation("1", f"{where}: a leave gives back {picked}, not all of {sorted(indexes)}")
        plan = self.audit.world.plan
        # Two threads may hold the same attempt of a message that was sought or redriven.
        if verb.name != "push" or (plan.concurrency > 1 and {"seek", "redrive"} & {*plan.moves}):
            return
        for position in indexes:
            message, fact = self.audit.picked(self.source, position)
            attempt = 1 if LogName.parse(self.source).kind == "queue" else message.attempt
            taken = (message.id or "", attempt) in verb.taken
            if taken != (position not in picked) and not self.audit.expired(fact):
                raise Violation(
                    "5", f"{where}: {message.body} was taken: {taken}, settled: {picked.get(position, 'ack')}"
                )

    def _check_waits(self, verb: Verb, row: int, fact: PullFact, before: PullRow) -> None:
        """Checks that a retried message waits as long as its policy, or its consumer, says."""
        audit, name = self.audit, LogName.parse(self.source)
        started = {transfer.token for transfer in before.transfers}
        asked = verb.details.get("row") == (self.partition, row) and fact.value.outcome != EXPIRED
        delays = verb.details.get("delays", {}) if asked else {}
        index_of = {position: index for index, position in enumerate(fact.positions)}
        for transfer in fact.value.transfers:
            if transfer.token in started:
                continue
            for at, pick in enumerate(transfer.picks):
                message, _ = audit.picked(self.source, pick)
                attempt = 1 if name.kind == "queue" else message.attempt
                where = f"{self.partition}: message {message.body}"
                audit.rules.check_attempts(where, name, self.member, transfer.kind, attempt)
                if transfer.kind == RETRY:
                    if pick not in index_of:
                        raise Violation("5", f"{where} is retried from a pull that did not lease it")
                    policy = audit.rules.policy(name, self.member)
                    wait_ms = delays.get(index_of[pick] - fact.base, policy.delay_ms(attempt))
                    self._check_wait(where, transfer, at, wait_ms, fact.value.claimed_ms)

    def _check_wait(self, where: str, transfer: Transfer, at: int, wait_ms: int, claimed_ms: int) -> None:
        if transfer.due_times is None or not wait_ms:
            if wait_ms or transfer.due_times is not None:
                raise Violation("7", f"{where} is retried after another delay than {wait_ms} ms")
            return
        # Another clock set the time of the claim.
        earliest_ms = claimed_ms - 2 * self.audit.world.plan.skew_ms
        if not earliest_ms <= transfer.due_times.due_ms(at) - wait_ms <= self.audit.soon:
            raise Violation(
                "7", f"{where} is tried again at {transfer.due_times.due_ms(at)}, its wait was {wait_ms} ms"
            )
