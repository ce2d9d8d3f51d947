"""What the actors were told, judged against what was stored at that moment."""

from base64 import urlsafe_b64decode
from dataclasses import dataclass, field

import msgspec

from hourwheel.model import Message, Placed, Pulled, PullResult, Settled, Settlement
from hourwheel.queueing.receipts import Receipt
from hourwheel.queueing.records import EXPIRED
from tests.simulation.facts import LogName
from tests.simulation.ledger import Ledger
from tests.simulation.pulls import PullHistory
from tests.simulation.world import Verb, Violation

_DIGEST_BYTES = 16


@dataclass
class Held:
    """A pull in a consumer's hands. ``asked`` is every verdict it ever asked for, by index."""

    subject: str
    group: str
    partition: str
    row: int
    receipt: str
    bodies: list[str]
    asked: dict[int, set[str]] = field(default_factory=dict)

    def asks(self, settlement: Settlement) -> None:
        if settlement.extend_seconds is not None:
            return
        for index in self.named(settlement):
            wishes = {"retry": settlement.retry, "released": settlement.release, "rejected": settlement.dead}
            wish = next((wish for wish, indexes in wishes.items() if index in (indexes or ())), "ack")
            self.asked.setdefault(index, set()).add(wish)

    def named(self, settlement: Settlement) -> list[int]:
        if settlement.ack is None:
            return list(range(len(self.bodies)))
        lists = (settlement.ack, settlement.retry, settlement.release, settlement.dead)
        return [index for indexes in lists for index in indexes or ()]


@dataclass
class History:
    ledger: Ledger
    accepted: dict[str, tuple[str, int]] = field(default_factory=dict)
    delivered: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    last_offset: dict[tuple[str, str, int], int] = field(default_factory=dict)

    def sending(self, bodies: list[str], *, again: bool) -> None:
        for body in bodies:
            sends = self.ledger.sends
            sends[body] = sends.get(body, 0) + 1 if again or body not in sends else sends[body]

    def produced(
        self, producer: str, targets: list[str], bodies: list[str], places: list[Placed], before: dict[str, int]
    ) -> None:
        """Success: each message stands where the answer says (2), behind what its producer sent before (6), and not
        in a subject that was another one already ``before`` it was sent (1)."""
        if len(places) != len(bodies):
            raise Violation("2", f"{len(places)} answers for {len(bodies)} messages")
        for subject, body, place in zip(targets, bodies, places, strict=True):
            log = self._find(subject, place, body)
            lane = (producer, log, place.queue)
            if place.offset <= self.last_offset.get(lane, -1):
                raise Violation("6", f"{producer} sent {body[:20]} later, but it is before: offset {place.offset}")
            self.last_offset[lane] = place.offset
            self.accepted[body] = (subject, generation := LogName.parse(log).generation)
            if generation < before[subject]:
                raise Violation("1", f"message {body[:20]} was accepted into {log}, which had been deleted before")

    def pulled(self, verb: Verb, subject: str, group: str, result: PullResult) -> list[Held]:
        """A pull hands out what it claimed (4), as it stands in the source (6, 11)."""
        held = [self._handed_out(verb, subject, group, pulled) for pulled in result.pulls]
        handed_out = {(pull.partition, pull.row) for pull in held}
        for partition, row in verb.claims:
            # Who learns of its claim after the lease was ended, or the group deleted, has lost it.
            history = self.ledger.pulls[partition]
            lost = history.pulls[row].value.outcome == EXPIRED or self.ledger.gone(history.source, history.member)
            if (partition, row) not in handed_out and not lost:
                raise Violation("4", f"a pull claimed {partition} row {row} and did not hand it out")
        return held

    def settled(self, verb: Verb, held: Held, settlement: Settlement, answer: Settled) -> None:
        """``settled`` was done, ``stale`` did nothing (5)."""
        if answer.status == "stale":
            if (held.partition, held.row) in verb.settled:
                raise Violation("5", f"a stale receipt changed {held.partition} row {held.row}")
            return
        if settlement.extend_seconds is not None:
            return
        history = self.ledger.pulls[held.partition]
        if self.ledger.gone(history.source, history.member):
            return
        verdicts = history.pulls[held.row].verdicts
        for index in held.named(settlement):
            verdict = "retry" if verdicts.get(index) == "attempts" else verdicts.get(index)
            if verdict not in held.asked[index] and not (verdict == "ack" and self._source_expired(held, index)):
                raise Violation(
                    "5", f"{held.partition} row {held.row}: message {index} was answered settled, it is {verdict}"
                )

    def _source_expired(self, held: Held, index: int) -> bool:
        history = self.ledger.pulls[held.partition]
        place = history.pulls[held.row].places[index]
        return self.ledger.expired(self.ledger.picked(history.source, place)[1])

    def _handed_out(self, verb: Verb, subject: str, group: str, pulled: Pulled) -> Held:
        packed = urlsafe_b64decode(pulled.receipt + "=" * (-len(pulled.receipt) % 4))[_DIGEST_BYTES:]
        receipt = msgspec.msgpack.decode(packed, type=Receipt)
        head = f"{subject}~{receipt.subject_generation}"
        member = f"{group}~{receipt.group_generation}"
        source = f"{head}/retry/{member}" if receipt.queue is None else f"{head}/{receipt.queue}"
        partition, row = f"{member}@{source}", receipt.row
        if (partition, row) not in verb.claims:
            raise Violation("4", f"a pull handed out {partition} row {row}, which it did not claim")
        history = self.ledger.pulls[partition]
        # The pull log of a deleted group is gone: its row may have been claimed anew by whoever has not heard of it.
        if not self.ledger.gone(history.source, history.member):
            self._check_content(history, row, pulled)
        bodies = [message.body or "" for message in pulled.messages]
        self.delivered.setdefault((subject, group), set()).update(bodies)
        return Held(subject, group, partition, row, pulled.receipt, bodies)

    def _check_content(self, history: PullHistory, row: int, pulled: Pulled) -> None:
        retries = pulled.queue == "retry"
        found = [(message.body, message.attempt, None if retries else message.offset) for message in pulled.messages]
        expected = [
            (message.body, message.attempt, None) if retries else (message.body, 1, offset)
            for message, offset in self._stored(history.source, history.pulls[row].places)
        ]
        if found != expected:
            raise Violation("4", f"{history.partition} row {row} holds {expected}, handed out was {found}")

    def _stored(self, source: str, places: list[tuple[int, int]]) -> list[tuple[Message, int]]:
        picked = [(self.ledger.picked(source, place), place) for place in places]
        return [(message, fact.row.number + place[1]) for (message, fact), place in picked]

    def _find(self, subject: str, place: Placed, body: str) -> str:
        """The log in which the message stands at that offset."""
        current = self.ledger.subjects[subject].generation
        for generation in range(current, 0, -1):
            log = f"{subject}~{generation}/{place.queue}"
            for fact in self.ledger.rows(log).values():
                index = place.offset - fact.row.number
                if not fact.row.filler and 0 <= index < fact.row.count and fact.messages[index].body == body:
                    return log
        raise Violation("2", f"message {body[:20]} was accepted at {place.queue}/{place.offset} and is not there")
