"""Implements producers: actors that send messages."""

import re
from dataclasses import dataclass, field
from typing import Any

from hourwheel.errors import CellUnavailable, Rejected
from hourwheel.model.fields import IDEMPOTENCY_MS
from hourwheel.model.messages import AddressedMessage, NewMessage
from hourwheel.producing.idempotency import IdempotencyKey
from tests.simulation.actors import Actor
from tests.simulation.dates import RequestedDue
from tests.simulation.filters import tags_of
from tests.simulation.world import Violation

_LONGEST_CALL_MS = 300_000


@dataclass
class Batch:
    bodies: list[str]
    targets: list[str]
    key: str | None
    waits: list[RequestedDue | None]
    sent_ms: int | None = None
    sequence: int | None = None
    """The number of the batch among those of its producer."""
    pads: list[str] = field(default_factory=list)
    """The padding that makes some of the messages large."""

    @property
    def headers(self) -> list[dict[str, str] | None]:
        """Returns the headers of each message."""
        return [{"pad": pad} if pad else None for pad in self.pads or [""] * len(self.bodies)]


@dataclass
class Producer(Actor):
    outbox: Batch | None = None
    count: int = 0
    waiting: int = 0
    """The number of batches with delayed messages so far."""
    previous: Batch | None = None
    """The last numbered batch that was accepted or refused."""

    def work(self) -> None:
        if self.outbox is None:
            self.outbox = self._batch()
        batch = self.outbox
        if batch.sent_ms is not None and not self._may_repeat(batch, batch.sent_ms):
            self.outbox = None
            return
        if self.send(batch):
            self.outbox = None
            if self.world.plan.misuse and batch.key is not None and self.rng.random() < 0.3:
                self._misuse(batch, batch.key, batch.sent_ms or self.world.now_ms)
            if batch.sequence is not None:
                if self.previous is not None and self.rng.random() < 0.3:
                    # A request that was held up: it is refused, whatever its age. Where the batch after it was refused
                    # itself, it is a repetition.
                    self.send(self.previous)
                self.previous = batch
        self.nap(400)

    def send_next(self) -> None:
        """Sends a batch that no fault hinders."""
        assert self.send(self._batch())

    def _misuse(self, batch: Batch, key: str, sent_ms: int) -> None:
        """Sends another batch under the key of an accepted one, and checks that it is refused."""
        self.send(
            Batch([f"{body}.else" for body in batch.bodies], batch.targets, key, batch.waits, sent_ms, batch.sequence)
        )

    def send(self, batch: Batch) -> bool:
        """Sends the batch, for the first time or again. Returns whether the batch is done: accepted, or refused for
        ever."""
        self.history.sending(batch.bodies, again=batch.key is None)
        batch.sent_ms = batch.sent_ms or self.world.now_ms
        idempotency = None if batch.key is None else _key(batch.key, batch)
        before = {name: subject.generation for name, subject in self.history.audit.subjects.items()}
        began_ms = self.earliest_ms()
        self.history.waits(batch.bodies, batch.waits, began_ms)
        waits = [wait.text for wait in batch.waits if wait is not None]
        verb, positions = self.ask(
            "produce", lambda: self._send(batch, idempotency), key=batch.key, bodies=batch.bodies, waits=waits
        )
        if positions is None:
            self._check_refusal(verb.error, batch)
            return isinstance(verb.error, Rejected)
        window = (began_ms, self.latest_ms())
        self.history.produced(self.process.name, batch.targets, batch.bodies, batch.waits, positions, before, window)
        return True

    def _check_refusal(self, error: Exception | None, batch: Batch) -> None:
        """Checks that no producer is refused for a cell that never had a part of its queues: a move to such a cell
        holds up nobody."""
        if not isinstance(error, CellUnavailable) or "delete-subject" in self.world.plan.moves:
            return
        subjects = self.history.audit.subjects
        routes = [route for name in set(batch.targets) for route in subjects[name].all_routes()]
        held = {mapping.cell for route in routes for mapping in route.mappings}
        named = set(re.findall(r"\bc\d+\b", str(error)))
        if named and not named & held:
            raise Violation("10", f"a producer is refused for a cell that has no part of its queues: {error}")

    def _may_repeat(self, batch: Batch, sent_ms: int) -> bool:
        if batch.key is None:
            return self.world.plan.resends
        if batch.sequence is not None:
            return True
        return self.world.now_ms - sent_ms < IDEMPOTENCY_MS - _LONGEST_CALL_MS

    def _send(self, batch: Batch, idempotency: IdempotencyKey | None) -> Any:
        plan = self.world.plan
        sequences = [
            body[-1] if plan.queues > 1 or (plan.ordered and body[-1] in "01") else None for body in batch.bodies
        ]
        whens: list[dict[str, Any]] = [{} if wait is None else wait.fields for wait in batch.waits]
        if len(self.world.plan.subjects) > 1:
            many = [
                AddressedMessage(
                    body=body, key=sequence, tags=self._tags(body), subject=subject, headers=headers, **when
                )
                for body, sequence, subject, headers, when in zip(
                    batch.bodies, sequences, batch.targets, batch.headers, whens, strict=True
                )
            ]
            return self.deployment.produce_many(many, idempotency)
        messages = [
            NewMessage(body=body, key=sequence, tags=self._tags(body), headers=headers, **when)
            for body, sequence, headers, when in zip(batch.bodies, sequences, batch.headers, whens, strict=True)
        ]
        return self.deployment.produce("s", messages, idempotency)

    def _tags(self, body: str) -> list[str] | None:
        return tags_of(body) if self.world.plan.filters else None

    def _batch(self) -> Batch:
        self.count += 1
        name, plan = f"{self.process.name}.{self.count}", self.world.plan
        size = self.rng.choice((1, 1, 1, 2)) if plan.crowd else self.rng.randint(1, 12 if plan.large_bytes else 4)
        bodies = [f"{name}.{index}" for index in range(size)]
        targets = [self.rng.choice(plan.subjects) for _ in bodies]
        key = name if self.rng.random() < plan.keyed else None
        sequence = self.count if plan.numbered and key is not None else None
        waits, pads = self._waits(len(bodies)), self._pads(len(bodies))
        return Batch(bodies, targets, key and (self.process.name if sequence else key), waits, None, sequence, pads)

    def _pads(self, size: int) -> list[str]:
        large_bytes = self.world.plan.large_bytes
        if not large_bytes:
            return []
        return [self.rng.randbytes(large_bytes // 2).hex() if self.rng.random() < 0.3 else "" for _ in range(size)]

    def _waits(self, size: int) -> list[RequestedDue | None]:
        delays = self.world.plan.delays
        if delays is None or self.waiting >= delays.batches:
            return [None] * size
        waits = [
            self.dates.draw(self.process.now_ms()) if self.rng.random() < delays.share else None for _ in range(size)
        ]
        self.waiting += any(waits)
        return waits


def _key(key: str, batch: Batch) -> IdempotencyKey:
    return IdempotencyKey(key, " ".join(batch.bodies).encode(), batch.sequence)
