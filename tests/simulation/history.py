"""Judges the answers that the actors got, against the rows that were stored at that moment."""

from base64 import urlsafe_b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.errors import NotFound
from hourwheel.logs.rows import sort_of
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.model.messages import Message, ScheduledMessage, SendResult
from hourwheel.model.pulls import Pull, PullResult, Settled, Settlement
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.receipts import Receipt
from hourwheel.pull_log.records import EXPIRED
from tests.simulation.audit import StoreAudit
from tests.simulation.dates import RequestedDue, parsed
from tests.simulation.effects import SentMessage
from tests.simulation.facts import LogName, Pick
from tests.simulation.hurries import Hurries
from tests.simulation.orders import OrderedHistory
from tests.simulation.pulls import PullFact, PullHistory
from tests.simulation.world import Verb, Violation

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Ticket:
    """The id of a delayed message."""

    scheduled_id: str
    body: str
    subject: str
    due_ms: int

    @property
    def position(self) -> tuple[str, Pick]:
        """Returns the bucket of the message, and its position there."""
        start, minutes, shard, row, index, _ = self.scheduled_id.split("-")
        return Bucket(int(start, 16) * 1_000, int(minutes), int(shard)).name, (int(row), int(index))

    @property
    def pick(self) -> Pick:
        return self.position[1]


@dataclass
class Leased:
    """A pull that a consumer has leased. ``asked``: the outcomes that the consumer has requested for each index."""

    subject: str
    group: str
    partition: str
    row: int
    receipt: str
    bodies: list[str]
    asked: dict[int, set[str]] = field(default_factory=dict)
    base: int = 0
    """The index of the pull's first message in its row."""

    def asks(self, settlement: Settlement) -> None:
        if settlement.extend_seconds is not None:
            return
        for index in self.named(settlement):
            ways = {"retry": retried(settlement), "released": settlement.release, "rejected": settlement.dead}
            way = next((way for way, indexes in ways.items() if index in (indexes or ())), "ack")
            self.asked.setdefault(index, set()).add(way)

    def named(self, settlement: Settlement) -> list[int]:
        if settlement.ack is None:
            return list(range(len(self.bodies)))
        lists = (settlement.ack, retried(settlement), settlement.release, settlement.dead)
        return [index for indexes in lists for index in indexes or ()]


def _handed_out(fact: PullFact) -> list[tuple[int, int]]:
    """Returns the positions of the messages that the last claim of a row hands out."""
    return fact.positions[fact.base : len(fact.positions) if isinstance(fact.value, OrderedRow) else fact.value.size]


def retried(settlement: Settlement) -> list[int]:
    return [entry if isinstance(entry, int) else entry.index for entry in settlement.retry or ()]


@dataclass
class History:
    audit: StoreAudit
    tickets: list[Ticket] = field(default_factory=list)
    given_up: set[str] = field(default_factory=set)
    """The messages that an actor has requested to cancel."""
    finals: dict[tuple[str, Pick], ScheduledMessage] = field(default_factory=dict)
    """The answer about each position once the change of its message was decided."""
    accepted: dict[str, tuple[str, int]] = field(default_factory=dict)
    delivered: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    last_offset: dict[tuple[str, str, int], int] = field(default_factory=dict)
    answered_at: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """The log, queue and offset at which each message was answered to be."""

    @cached_property
    def hurries(self) -> Hurries:
        return Hurries(self.audit)

    def sending(self, bodies: list[str], *, again: bool) -> None:
        for body in bodies:
            self.audit.sent_ms.setdefault(body, self.audit.world.now_ms)
            sends = self.audit.sends
            sends[body] = sends.get(body, 0) + 1 if again or body not in sends else sends[body]

    def waits(self, bodies: list[str], waits: Sequence[RequestedDue | None], now_ms: int) -> None:
        """Records that messages are about to be sent, or moved, with these due times."""
        for body, wait in zip(bodies, waits, strict=True):
            self.audit.effects.requested(body, wait, now_ms)

    def produced(
        self,
        producer: str,
        targets: list[str],
        bodies: list[str],
        waits: list[RequestedDue | None],
        positions: list[SendResult],
        before: dict[str, int],
        window: tuple[int, int],
    ) -> None:
        """Judges an accepted batch: each message is where the answer says (2), behind the earlier messages of its
        producer (6), and not in a subject that was replaced ``before`` the batch was sent (1). A batch that was
        accepted before and is repeated gets its first answer (2)."""
        if len(positions) != len(bodies):
            raise Violation("2", f"{len(positions)} answers for {len(bodies)} messages")
        for subject, body, wait, reservation in zip(targets, bodies, waits, positions, strict=True):
            if reservation.scheduled is not None:
                self._scheduled(subject, body, wait, reservation, window)
                if self.accepted[body][1] < before[subject]:
                    raise Violation("1", f"message {body[:20]} waits for {subject}, which had been deleted before")
                continue
            if wait is not None and wait.due_ms(window[0]) > window[1]:
                raise Violation("7", f"message {body[:20]} was sent at once, it was requested for {wait.text}")
            log = self._find(subject, reservation, body)
            self._check_order(producer, body, (log, reservation.queue, reservation.offset))
            self.accepted[body] = (subject, generation := LogName.parse(log).generation)
            if generation < before[subject]:
                raise Violation("1", f"message {body[:20]} was accepted into {log}, which had been deleted before")

    def _check_order(self, producer: str, body: str, found: tuple[str, int, int]) -> None:
        first = self.answered_at.setdefault(body, found)
        if first is not found:
            if first != found:
                raise Violation("2", f"message {body[:20]} was accepted at {first}, and its repetition at {found}")
            return
        log, queue, offset = found
        if offset <= self.last_offset.get((producer, log, queue), -1):
            raise Violation("6", f"{producer} sent {body[:20]} later, but it is before: offset {offset}")
        self.last_offset[producer, log, queue] = offset

    def _scheduled(
        self, subject: str, body: str, wait: RequestedDue | None, reservation: SendResult, window: tuple[int, int]
    ) -> None:
        """Checks that a delayed message is in the bucket that its id names, with the due time that its sender
        requested."""
        ticket = Ticket(reservation.scheduled_id or "", body, subject, parsed(reservation.scheduled or ""))
        history = self.audit.bucket(ticket.position[0])
        fact = self.audit.rows(history.bucket.log).get(ticket.pick[0])
        if fact is None or ticket.pick[1] >= fact.row.count or fact.messages[ticket.pick[1]].body != body:
            raise Violation("2", f"message {body[:20]} was accepted as {ticket.position} and is not there")
        due_ms = history.plan(ticket.pick).due_ms(ticket.pick[1])
        if due_ms != ticket.due_ms:
            raise Violation("7", f"message {body[:20]} is due at {due_ms}, the answer was {reservation.scheduled}")
        self._check_due(body, wait, due_ms, window)
        self.accepted[body] = (subject, history.plan(ticket.pick).generation)
        self.audit.effects.accepted(SentMessage(*self.accepted[body], body))
        self.tickets.append(ticket)

    def _check_due(self, body: str, wait: RequestedDue | None, due_ms: int, window: tuple[int, int]) -> None:
        # A repeated batch counts from its first request on.
        first_ms = self.audit.effects.earliest_ms[body] if wait and wait.at_ms is None else due_ms
        if wait is None or not min(first_ms, wait.due_ms(window[0])) <= due_ms <= wait.due_ms(window[1]):
            raise Violation("7", f"message {body[:20]} is due at {due_ms}, it was requested for {wait and wait.text}")

    def known(self, ticket: Ticket) -> ScheduledMessage | None:
        """Returns the final answer about a message, if there was one before an actor asks about it."""
        return self.finals.get(ticket.position)

    def answered(self, verb: Verb, ticket: Ticket, before: ScheduledMessage | None, answer: ScheduledMessage) -> None:
        """Checks that an answer about a delayed message is true, and stays true (8)."""
        where = f"{verb.name} of {ticket.position}"
        if answer.state == "moved":
            # The answer is about the message at its new time.
            answer = msgspec.structs.replace(answer, state="dispatched" if answer.dispatched_at else "waiting")
        final = Ticket(answer.scheduled_id, ticket.body, ticket.subject, parsed(answer.deliver_at))
        if answer.state != "waiting":
            before = before or self.finals.get(final.position)
        # The answer has a position once the row is stored.
        known_at = answer.offset if before is None or before.offset is None else before.offset
        if before is not None and (before.state, known_at) != (answer.state, answer.offset or known_at):
            raise Violation("8", f"{where} was answered {before.state}, now it is {answer.state} {answer.offset}")
        history = self.audit.bucket(final.position[0])
        if answer.state == "cancelled":
            history.tell_cancelled(final.pick)
            generation = history.plan(final.pick).generation
            self.audit.effects.tell_cancelled(SentMessage(ticket.subject, generation, ticket.body), final.position)
        elif answer.state == "dispatched" and final.pick not in history.named:
            raise Violation("8", f"{where} is answered dispatched, it was not handed over")
        elif answer.state == "waiting" and history.named_at.get(final.pick, verb.at) < verb.at:
            raise Violation("8", f"{where} is answered waiting, it had been handed over before")
        elif answer.state == "waiting" and verb.name == "cancel":
            raise Violation("8", f"{where} is answered waiting")
        if answer.state != "waiting" and (before is None or before.offset is None):
            self.finals[ticket.position] = self.finals[final.position] = answer
        elif final.position != ticket.position:
            self.tickets.append(final)

    def moved(self, ticket: Ticket, requested: RequestedDue, answer: ScheduledMessage, window: tuple[int, int]) -> None:
        """Checks that a moved message waits for its new time, where the answer says."""
        final = Ticket(answer.scheduled_id, ticket.body, ticket.subject, parsed(answer.deliver_at))
        plan = self.audit.bucket(final.position[0]).plan(final.pick)
        due_ms = plan.due_ms(final.pick[1])
        if due_ms != final.due_ms or due_ms > max(requested.due_ms(window[1]), window[1]):
            raise Violation(
                "7",
                f"{ticket.position} is due at {due_ms}, answered {answer.deliver_at}; requested was {requested.text}",
            )
        if due_ms < min(requested.due_ms(window[0]), self.audit.effects.earliest_ms[ticket.body]):
            raise Violation("7", f"{ticket.position} is due at {due_ms}, it was requested for {requested.text}")

    def refused(self, verb: Verb, ticket: Ticket) -> None:
        """Checks that a message is unknown only once its bucket, or one to which it was moved, is removed."""
        bucket, pick = ticket.position
        passed = [bucket]
        while (change := self.audit.bucket(bucket).changes.get(pick)) is not None and change.moved is not None:
            bucket, pick = change.moved[0], change.moved[1:]
            passed.append(bucket)
        if isinstance(verb.error, NotFound) and not any(self.audit.bucket(name).may_go for name in passed):
            raise Violation("8", f"{verb.name} of {ticket.position}: {verb.error}")

    def pulled(self, verb: Verb, subject: str, group: str, result: PullResult) -> list[Leased]:
        """Judges a pull: it hands out the messages that it claimed (4), as the source contains them (6, 11)."""
        self._check_answer(group, result)
        held = [self._handed_out(verb, subject, group, pulled) for pulled in result.pulls]
        handed_out = {(pull.partition, pull.row) for pull in held}
        for partition, row in verb.claims:
            # A consumer whose answer comes after the lease was ended, or the group deleted, has no lease. Nor has one
            # whose claim has no message that can be read, also where its row has grown and keeps earlier messages.
            history = self.audit.pulls[partition]
            value = history.pulls[row].value
            lost = value.outcome == EXPIRED or not value.claimed
            lost = lost or self.audit.gone(history.source, history.member)
            # Nor has one that was answered late, and in whose name somebody left meanwhile, which releases all of it.
            late = (partition, sort_of(row)) in verb.answered_late
            lost = lost or (late and history.pulls[row].released)
            # A pull does not know of a claim whose answer was lost, alone or with its transaction: the messages come
            # again later.
            lost = lost or (partition, sort_of(row)) in verb.unanswered or self._unread(verb, history, row)
            if (partition, row) not in handed_out and not lost:
                raise Violation("4", f"a pull claimed {partition} row {row} and did not hand it out")
        return held

    def _unread(self, verb: Verb, history: PullHistory, row: int) -> bool:
        """Returns whether messages of a claim are in objects of a cell of which one did not answer."""
        rows = self.audit.rows(history.source)
        large = any(rows[row_no].row.large_batch is not None for row_no, _ in history.pulls[row].positions)
        return large and cell_of(history.source) in verb.unread

    def _check_answer(self, group: str, result: PullResult) -> None:
        """Checks that an answer is within its bound, except for a first message that alone exceeds it."""
        most, messages = self.audit.world.plan.answer_bytes, [pull.messages for pull in result.pulls]
        size = len(msgspec.json.encode(msgspec.json.encode(messages).decode()))
        if most and sum(map(len, messages)) > 1 and size > most:
            raise Violation("4", f"a pull of group {group} is answered with {size} bytes, {most} fit")

    def settled(self, verb: Verb, held: Leased, settlement: Settlement, answer: Settled) -> None:
        """Checks that ``settled`` took effect, that ``stale`` had no effect, and that no receipt of the home cell is
        ``unavailable``, after which nobody knows whether the settlement took effect (5)."""
        history = self.audit.pulls[held.partition]
        gone = self.audit.gone(history.source, history.member)
        if answer.status == "stale":
            # The answer may have been lost, and the group deleted before the request was repeated.
            if (held.partition, held.row) in verb.settled and not gone:
                raise Violation("5", f"a stale receipt changed {held.partition} row {held.row}")
            return
        if answer.status == "unavailable" and cell_of(history.source) == HOME:
            raise Violation("5", f"a receipt of the home cell is unavailable: {held.partition} row {held.row}")
        if settlement.extend_seconds is not None or gone or answer.status == "unavailable":
            return
        outcomes = history.pulls[held.row].outcomes
        self._check_not_released(held, settlement, outcomes)
        for index in held.named(settlement):
            found = outcomes.get(held.base + index)
            outcome = "retry" if found == "attempts" else found
            if outcome == "behind":
                continue  # an earlier message of its key was not acknowledged
            if outcome == "stopped" and held.asked[index] & {"retry", "rejected"}:
                continue
            if outcome not in held.asked[index] and not (outcome == "ack" and self._source_expired(held, index)):
                raise Violation(
                    "5", f"{held.partition} row {held.row}: message {index} was answered settled, it is {outcome}"
                )

    def _check_not_released(self, held: Leased, settlement: Settlement, outcomes: dict[int, str]) -> None:
        """Checks that a settlement that only acknowledges messages is not answered as if it had, where each of them was
        released with an earlier message of its key before."""
        found = {outcomes.get(held.base + index) for index in held.named(settlement)}
        if found == {"behind"} and not (settlement.retry or settlement.release or settlement.dead):
            raise Violation("5", f"{held.partition} row {held.row}: {settlement} is answered, all of it was released")

    def _source_expired(self, held: Leased, index: int) -> bool:
        history = self.audit.pulls[held.partition]
        reservation = history.pulls[held.row].positions[held.base + index]
        return self.audit.expired(self.audit.picked(history.source, reservation)[1])

    def _handed_out(self, verb: Verb, subject: str, group: str, pulled: Pull) -> Leased:
        packed = urlsafe_b64decode(pulled.receipt + "=" * (-len(pulled.receipt) % 4))[_DIGEST_BYTES:]
        receipt = msgspec.msgpack.decode(packed, type=Receipt)
        head = f"{subject}~{receipt.subject_generation}"
        # In a broadcast group the receipt names the group of the consumer.
        consumer = verb.details.get("consumer")
        if "+" in receipt.group and consumer is not None and receipt.group.rpartition("+")[2] != consumer:
            raise Violation("11", f"{consumer} is handed out messages of the group {receipt.group}")
        member = f"{receipt.group}~{receipt.group_generation}"
        source = f"{head}/retry/{member}" if receipt.queue is None else receipt.source or f"{head}/{receipt.queue}"
        partition, row = f"{member}@{source}", receipt.row_no
        if (partition, row) not in verb.claims:
            raise Violation("4", f"a pull handed out {partition} row {row}, which it did not claim")
        history = self.audit.pulls[partition]
        # The pull log of a deleted group is erased: a process that does not know of it may have claimed the row again.
        if not self.audit.gone(history.source, history.member):
            self._check_content(history, row, pulled)
        bodies = [message.body or "" for message in pulled.messages]
        for body in bodies:
            self.in_time(body)
        self.delivered.setdefault((subject, member if receipt.group != group else group), set()).update(bodies)
        return Leased(subject, group, partition, row, pulled.receipt, bodies, base=history.pulls[row].base)

    def in_time(self, body: str) -> None:
        """Checks that a delivered message is due (7)."""
        # The clock of the wheel or of the producer counts, whichever is wrong by more.
        if self.audit.effects.earliest_ms.get(body, 0) > self.audit.soon:
            raise Violation("7", f"message {body[:20]} is delivered before {self.audit.effects.earliest_ms[body]}")

    def _check_content(self, history: PullHistory, row: int, pulled: Pull) -> None:
        retries = pulled.queue == "retry"
        found = [(message.body, message.attempt, None if retries else message.offset) for message in pulled.messages]
        expected = [
            (message.body, message.attempt, None) if retries else (message.body, 1, offset)
            for message, offset in self._stored(history.source, _handed_out(history.pulls[row]))
        ]
        if isinstance(history, OrderedHistory):
            attempts = history.attempts[row]
            expected = [(body, attempt, at) for (body, _, at), attempt in zip(expected, attempts, strict=True)]
        if found != expected:
            raise Violation("4", f"{history.partition} row {row} holds {expected}, handed out was {found}")

    def _stored(self, source: str, positions: list[tuple[int, int]]) -> list[tuple[Message, int]]:
        picked = [(self.audit.picked(source, reservation), reservation) for reservation in positions]
        return [(message, fact.row.first_seq + reservation[1]) for (message, fact), reservation in picked]

    def _find(self, subject: str, reservation: SendResult, body: str) -> str:
        """Returns the log that contains the message at this offset."""
        current = self.audit.subjects[subject].generation
        for generation in range(current, 0, -1):
            for log in self.audit.queue_logs(subject, generation, reservation.queue):
                for fact in self.audit.rows(log).values():
                    index = reservation.offset - fact.row.first_seq
                    if not fact.row.filler and 0 <= index < fact.row.count and fact.messages[index].body == body:
                        return log
        raise Violation(
            "2", f"message {body[:20]} was accepted at {reservation.queue}/{reservation.offset} and is not there"
        )
