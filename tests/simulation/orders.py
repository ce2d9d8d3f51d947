"""Judges the history of an ordered group's pull log: each key is served one message after the other (invariant 14).

The judge keeps its own account, by the keys of the messages and the plan of the run: which messages are in flight,
which wait behind an earlier one of their key, which are to be tried again and when.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, NamedTuple

from hourwheel.handover.copies import ATTEMPTS, REJECTED, RETRY
from hourwheel.ordered.later_messages import unpacked
from hourwheel.pull_log.ordered_rows import STOPPED_MS, OrderedRow, ParkedKey, Snapshot
from hourwheel.pull_log.records import CLOSED, EXPIRED, OPEN, PASSED, SOUGHT, Position, PullRow
from tests.simulation import filters
from tests.simulation.facts import LogName, Promiser
from tests.simulation.parts import check_earlier_parts, check_later_parts
from tests.simulation.pulls import PullFact, PullHistory
from tests.simulation.world import Verb, Violation

Place = tuple[int, int]


class Waiting(NamedTuple):
    """A message that waits for its turn: behind another one (``due_ms`` 0), or for its next attempt."""

    attempt: int = 1
    due_ms: int = 0


@dataclass
class OrderedHistory(PullHistory):
    kind: ClassVar[type[PullRow]] = OrderedRow
    waiting: dict[Place, Waiting] = field(default_factory=dict)
    flying: dict[Place, int] = field(default_factory=dict)
    """The pull row that has the message in flight."""
    void: set[tuple[int, int]] = field(default_factory=set)
    """Messages in flight, by pull row and index, that a seek hands out again."""
    attempts: dict[int, list[int]] = field(default_factory=dict)
    served: set[str | Place] = field(default_factory=set)
    """The keys of the messages that the group has taken."""
    failed_at: dict[Place, int] = field(default_factory=dict)
    """The number of calls of the world when a message failed last."""
    pages: dict[str, tuple[ParkedKey, ...]] = field(default_factory=dict)
    """The pages of snapshots, by name."""

    @property
    def unserved(self) -> int:
        """Returns the number of messages that have expired before their turn came, or wait for an operator."""
        return sum(self._expired(place) or self._stopped(place) for place in self.waiting)

    def unseen(self) -> int:
        """Returns the number of messages that wait and were never handed out."""
        return sum(not wait.due_ms and not self._expired(place) for place, wait in self.waiting.items())

    def may_wait(self) -> int:
        """Returns the number of messages that may count as waiting: those that were handed out while others of their
        key wait, or are in flight; and those that were not, and have expired. The lag counts expired messages until
        their row is below the trim mark, which the sweeper moves."""
        keys = Counter(self.key_of(place) for place in [*self.waiting, *self.flying])
        tried = [place for place, wait in self.waiting.items() if 0 < wait.due_ms < STOPPED_MS]
        expired = sum(not wait.due_ms and self._expired(place) for place, wait in self.waiting.items())
        return expired + sum(keys[self.key_of(place)] > 1 for place in tried)

    def left(self) -> list[Place]:
        """Returns the messages that the group has not done with, expired ones left out."""
        ahead = [
            (number, index)
            for number, fact in self.audit.rows(self.source).items()
            for index in range(fact.row.count)
            if (number, index) >= (self.end.row_no, self.end.index)
        ]
        return [place for place in [*self.flying, *self.waiting, *ahead] if not self._expired(place)]

    def stored(self, verb: Verb, row: int, value: PullRow) -> None:
        assert isinstance(value, OrderedRow)
        known, gone = self.pulls.get(row), self.audit.gone(self.source, self.member)
        if gone:
            self.check_erased(verb, row, value)
        if gone or (known is not None and known.value.claim == value.claim):
            if not gone and known is not None:
                self._changed(verb, row, known, value)
            elif gone and value.outcome not in (SOUGHT, PASSED):
                self._remember(verb, row, value)
            return
        if row != self.next_row:
            raise Violation("4", f"{self.partition}: pull row {row} came, {self.next_row} is next")
        if value.outcome == SOUGHT:
            self._sought(verb, value)
            self._start_anew(value.end)
            self.pulls[row] = PullFact(value, [])
        else:
            self.audit.rules.check_claim(f"{self.partition}: pull row {row}", verb, value)
            self._check_claim(row, value, filters.covered(value))
            self._claimed(verb, row, value)
        self.next_row, self.end = row + 1, value.end

    def pending(self) -> list[str]:
        if self.audit.gone(self.source, self.member):
            return []
        waits = [
            f"message {place} of {self.source} waits"
            for place in self.waiting
            if not self._expired(place) and not self._stopped(place)
        ]
        rows = super().pending()
        if self._stops():
            # The messages behind a stopped key, and the parts after this one, wait for an operator.
            rows = [f"pull row {row} is open" for row in sorted(self.open)]
        return rows + waits

    def _stops(self) -> bool:
        """Returns whether a key of the group has stopped, in any log."""
        histories = [history for history in self.audit.pulls.values() if isinstance(history, OrderedHistory)]
        waits = [wait for other in histories if other.member == self.member for wait in other.waiting.values()]
        return any(wait.due_ms == STOPPED_MS for wait in waits)

    def saved(self, snapshot: Snapshot) -> None:
        """Checks that a snapshot of the present forgets no message, and invents none."""
        if snapshot.row_no != self.next_row or self.audit.gone(self.source, self.member):
            return
        if missing := set(snapshot.pages) - self.pages.keys():
            raise Violation("1", f"{self.partition}: a snapshot names the pages {missing}, which are not stored")
        keys = [*snapshot.parked, *(key for name in snapshot.pages for key in self.pages[name])]
        entries = [entry for key in keys for entry in (*key.first, *chain.from_iterable(map(unpacked, key.blocks)))]
        parked = {(entry.row_no, entry.in_row): entry for entry in entries}
        told = {entry.row_no: entry for entry in snapshot.open}
        for place, wait in self.waiting.items():
            if place in parked:
                if (parked[place].attempt, parked[place].due_ms) != wait:
                    raise Violation(
                        "14", f"{self.partition}: a snapshot tells {parked[place]} of {place}, it is {wait}"
                    )
            elif not any(row in told for row, fact in self.pulls.items() if place in fact.positions):
                raise Violation("1", f"{self.partition}: a snapshot forgets message {place}")
        leased = {row for row in self.open if self.pulls[row].value.state == OPEN}
        if not leased <= told.keys():
            raise Violation("14", f"{self.partition}: a snapshot forgets the open rows {leased - told.keys()}")
        if astray := parked.keys() - self.waiting.keys():
            raise Violation("14", f"{self.partition}: a snapshot tells that {astray} are parked, they are not")

    @property
    def next_due_ms(self) -> int:
        """Returns the time at which the next message that failed is due; 0 if a message can be handed out before."""
        if self.open or any(not wait.due_ms and not self._held(place) for place, wait in self.waiting.items()):
            return 0
        return min((wait.due_ms for wait in self.waiting.values() if 0 < wait.due_ms < STOPPED_MS), default=0)

    def _stopped(self, place: Place) -> bool:
        """Returns whether the message, or one before it that has its key, waits for an operator."""
        key = self.key_of(place)
        return any(
            wait.due_ms == STOPPED_MS and other <= place and self.key_of(other) == key
            for other, wait in self.waiting.items()
        )

    def _held(self, place: Place) -> bool:
        key = self.key_of(place)
        return any(other < place and self.key_of(other) == key for other in self.waiting)

    # Claims

    def _claimed(self, verb: Verb, row: int, value: OrderedRow) -> None:
        order = value.order
        assert order is not None
        where = f"{self.partition}: pull row {row}"
        covered = [(position.row_no, position.index) for position in value.covers()]
        picked = [(parked.row_no, parked.in_row) for _, parked in value.messages()]
        for _, gone, index in order.dropped:
            if not self._expired((gone, index)) or self.waiting.pop((gone, index), None) is None:
                raise Violation("1", f"{where} drops {(gone, index)}, which has not expired")
        self._cover(where, covered, picked, len(order.parked))
        attempts = []
        for (_, parked), place in zip(value.messages(), picked, strict=True):
            wait = self._turn(where, place, deciding=verb.name == "decide")
            if wait.attempt != parked.attempt:
                raise Violation("14", f"{where} takes {place} at attempt {parked.attempt}, the next is {wait.attempt}")
            attempts.append(parked.attempt)
            self.flying[place] = row
            check_earlier_parts(self, where, place)
            check_later_parts(self, where, place)
            self.served.add(self.key_of(place))
        self._check_bounds(verb, where, covered)
        self.attempts[row] = attempts
        if value.outcome == PASSED:
            self.pulls[row] = PullFact(value, [])
            if picked:
                raise Violation("1", f"{where} passes over messages")
        elif verb.name == "decide":
            self._decided_by_operator(row, value)
        else:
            self._remember(verb, row, value)

    def _decided_by_operator(self, row: int, value: OrderedRow) -> None:
        """Judges the decision of an operator, who takes the first messages of stopped keys, and retries them or gives
        them up at once."""
        name = LogName.parse(self.source)
        fact = self.pulls[row] = PullFact(value, [(parked.row_no, parked.in_row) for _, parked in value.messages()])
        target = frozenset({f"{name.subject}~{name.generation}/dead/{self.member}"})
        attempts = dict(zip(fact.positions, self.attempts[row], strict=True))
        self.audit.keep_promises(Promiser((), value.transfers, self.source, target, attempts=attempts))
        assert value.order is not None
        again = {index: (attempt, due_ms) for index, attempt, due_ms in value.order.failed}
        for index, position in enumerate(fact.positions):
            self._land(row, index, position, again.get(index))
        if value.state != CLOSED:
            self.open.add(row)

    def _cover(self, where: str, covered: list[Place], picked: list[Place], before: int) -> None:
        if len({*picked}) < len(picked) or not set(picked[before:]) <= set(covered):
            raise Violation("4", f"{where} takes {picked}, it covers {covered}")
        for place in covered:
            if place in self.waiting:
                raise Violation("14", f"{where} parks {place}, which is parked already")
            self.waiting[place] = Waiting()

    def _check_bounds(self, verb: Verb, where: str, covered: list[Place]) -> None:
        """Checks that the queue waits at a bound. Messages that have failed since the claim began may be more."""
        name, max_parked = LogName.parse(self.source), self.audit.world.plan.max_parked
        group = self.audit.groups.get((name.subject, name.generation, self.member))
        parked = [place for place in covered if place in self.waiting]
        unseen = sum(not wait.due_ms for wait in self.waiting.values())
        if parked and unseen > max_parked:
            raise Violation("14", f"{where} parks {parked}, {unseen} messages are parked")
        first: dict[str | Place, Place] = {}
        for place in self.waiting.keys() - set(covered):
            key = self.key_of(place)
            first[key] = min(place, first.get(key, place))
        held = [place for place in first.values() if self.failed_at.get(place, verb.at) < verb.at]
        if group is not None and covered and len(held) >= group.max_held:
            raise Violation("14", f"{where} covers {covered}, though {len(held)} keys are held")

    def _remember(self, verb: Verb, row: int, value: OrderedRow) -> None:
        messages = value.messages()
        positions = [(parked.row_no, parked.in_row) for _, parked in messages]
        self.pulls[row] = PullFact(value, positions, self.audit.world.calls)
        self.attempts[row] = [parked.attempt for _, parked in messages]
        self.open.add(row)
        self.audit.rules.check_in_flight(self, row, verb)
        self.audit.rules.check_rate(self, row, verb)
        verb.claims.append((self.partition, row))

    def _turn(self, where: str, place: Place, *, deciding: bool) -> Waiting:
        """Takes a message that waits, if it is its turn."""
        key, wait = self.key_of(place), self.waiting.get(place)
        if wait is None:
            raise Violation("14", f"{where} takes {place}, which does not wait")
        if wait.due_ms > self.audit.soon and (wait.due_ms < STOPPED_MS or not deciding):
            raise Violation("14", f"{where} takes {place} before {wait.due_ms}")
        row = int(where.rsplit(" ", 1)[1])
        busy = [other for other, held in self.flying.items() if held != row and self.key_of(other) == key]
        if busy:
            raise Violation("14", f"{where} takes {place} while {busy} of its key is in flight")
        earlier = [other for other in self.waiting if other < place and self.key_of(other) == key]
        later = [other for other, held in self.flying.items() if held == row and other > place]
        if earlier or any(self.key_of(other) == key for other in later):
            raise Violation("14", f"{where} takes {place}, and {earlier} of its key waits")
        return self.waiting.pop(place)

    def _start_anew(self, position: Position) -> None:
        place = (position.row_no, position.index)
        self.waiting = {at: wait for at, wait in self.waiting.items() if wait.due_ms and at < place}
        for at, row in self.flying.items():
            if at >= place:
                self.void.add((row, self.pulls[row].positions.index(at)))

    # Settlements

    def _changed(self, verb: Verb, row: int, known: PullFact, value: PullRow) -> None:
        before = known.value
        assert isinstance(before, OrderedRow)
        assert isinstance(value, OrderedRow)
        assert before.order is not None
        assert value.order is not None
        where = f"{self.partition}: pull row {row}"
        fixed = ("first", "counts", "end", "consumer")
        parts = ("digests", "taken", "parked", "dropped")
        if any(getattr(before, name) != getattr(value, name) for name in fixed) or any(
            getattr(before.order, name) != getattr(value.order, name) for name in parts
        ):
            raise Violation("3", f"{where} covers something else")
        was = {index for index in range(value.size) if before.decided(index)}
        now = {index for index in range(value.size) if value.decided(index)}
        if before.state == CLOSED or not was <= now:
            raise Violation("5", f"{where} was settled and changed")
        if before.state != OPEN and (value.state == OPEN or value.outcome != before.outcome):
            raise Violation("5", f"{where} was settled and is settled otherwise")
        if value.order.failed[: len(before.order.failed)] != before.order.failed:
            raise Violation("5", f"{where}: failed messages were changed")
        self.audit.rules.check_lease(where, verb, before, value)
        known.value = value
        self._decided(verb, row, known, before, now - was)
        if value.state == CLOSED:
            self.open.discard(row)

    def _decided(self, verb: Verb, row: int, known: PullFact, before: OrderedRow, fresh: set[int]) -> None:
        value, where = known.value, f"{self.partition}: pull row {row}"
        assert isinstance(value, OrderedRow)
        assert value.order is not None
        name = LogName.parse(self.source)
        head = f"{name.subject}~{name.generation}"
        targets, attempts = (
            frozenset({f"{head}/dead/{self.member}"}),
            dict(zip(known.positions, self.attempts[row], strict=True)),
        )
        self.audit.keep_promises(Promiser(before.transfers, value.transfers, self.source, targets, attempts=attempts))
        assert before.order is not None
        again = {index: (attempt, due_ms) for index, attempt, due_ms in value.order.failed[len(before.order.failed) :]}
        if not again.keys() <= fresh:
            raise Violation("9", f"{where} parks messages that it did not settle")
        kinds = self._kinds(where, known, before, fresh)
        ended = value.outcome == EXPIRED
        failed: dict[str | Place, int] = {}
        for index in sorted(fresh):
            place = known.positions[index]
            key = self.key_of(place)
            if key in failed and index not in again:
                raise Violation("14", f"{where}: message {place} overtakes one of its key that failed")
            known.outcomes[index] = self._verdict(verb, row, index, again, kinds, behind=key in failed)
            alone = value.order is not None and value.order.suspect
            if ended and (known.outcomes[index] not in ("released", "behind")) != alone:
                raise Violation("4", f"{where}: the lease of message {place} ended as {known.outcomes[index]}")
            if index in again:
                failed.setdefault(key, index)
            elif ended and index not in kinds:
                raise Violation("1", f"{where}: message {place} was dropped when the lease ended")
            self._land(row, index, place, again.get(index))
        self._check_behind(where, known, failed)
        if ended and fresh and self.audit.soon < before.lease_until_ms:
            raise Violation("4", f"{where} was ended before its lease")
        if fresh and not ended:
            verb.settled.append((self.partition, row))

    def _check_behind(self, where: str, known: PullFact, failed: dict[str | Place, int]) -> None:
        for index in set(range(known.value.size)) - known.decided():
            if index > failed.get(self.key_of(known.positions[index]), index):
                raise Violation("14", f"{where}: message {index} stays leased behind one of its key that failed")

    def _kinds(self, where: str, known: PullFact, before: OrderedRow, fresh: set[int]) -> dict[int, str]:
        """Returns the messages that become dead letters, by their index."""
        started = {transfer.token for transfer in before.transfers}
        index_of = {place: index for index, place in enumerate(known.positions)}
        kinds = {}
        for transfer in known.value.transfers:
            if transfer.token not in started:
                kinds |= {index_of[pick]: transfer.kind for pick in transfer.picks}
        if not kinds.keys() <= fresh:
            raise Violation("9", f"{where} hands over messages that it did not settle")
        return kinds

    def _verdict(
        self,
        verb: Verb,
        row: int,
        index: int,
        again: dict[int, tuple[int, int]],
        kinds: dict[int, str],
        *,
        behind: bool,
    ) -> str:
        attempt, name = self.attempts[row][index], LogName.parse(self.source)
        where = f"{self.partition}: message {index} of pull row {row}"
        if index in kinds:
            self.audit.rules.check_attempts(where, name, self.member, kinds[index], attempt)
            return {ATTEMPTS: "attempts", REJECTED: "rejected"}[kinds[index]]
        if index not in again:
            return "ack"
        following, due_ms = again[index]
        if due_ms == STOPPED_MS:
            if self.audit.world.plan.when_dead != "stop" or behind:
                raise Violation("14", f"{where} stops its key")
            return "stopped"
        if following == attempt:
            return "behind" if behind else "released"
        if following != attempt + 1 or behind:
            raise Violation("14", f"{where} fails at attempt {attempt}, and comes again at {following}")
        self.audit.rules.check_attempts(where, name, self.member, RETRY, attempt)
        value = self.pulls[row].value
        asked = verb.details.get("row") == (self.partition, row) and value.outcome != EXPIRED
        delays = verb.details.get("delays", {}) if asked else {}
        wait_ms = delays.get(index, self.audit.rules.policy(name, self.member).delay_ms(attempt))
        if not value.claimed_ms - 2 * self.audit.world.plan.skew_ms <= due_ms - wait_ms <= self.audit.soon:
            raise Violation("7", f"{where} comes again at {due_ms}, its wait was {wait_ms} ms")
        return "retry"

    def _land(self, row: int, index: int, place: Place, again: tuple[int, int] | None) -> None:
        if self.flying.get(place) == row:
            del self.flying[place]
        if again is not None and (row, index) not in self.void:
            if place in self.waiting:
                raise Violation("14", f"{self.partition}: message {place} is parked twice")
            self.waiting[place] = Waiting(*again)
            self.failed_at[place] = self.audit.world.calls

    def key_of(self, place: Place) -> str | Place:
        message, _ = self.audit.picked(self.source, place)
        return message.key if message.key is not None else place

    def _expired(self, place: Place) -> bool:
        return self.audit.expired(self.audit.picked(self.source, place)[1])
