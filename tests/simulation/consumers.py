"""Implements consumers: actors that pull messages and settle them."""

from dataclasses import dataclass, field
from zlib import crc32

from hourwheel.api.pull import as_messages
from hourwheel.model.due import delay_ms
from hourwheel.model.pulls import PullRequest, PullResult, RetryLater, Settled, Settlement
from tests.simulation.actors import Actor
from tests.simulation.history import Leased
from tests.simulation.world import Verb

_PREFETCHES, _OUT_OF_ORDER = 0, 1


@dataclass
class Consumer(Actor):
    held: list[Leased] = field(default_factory=list)
    spent: list[Leased] = field(default_factory=list)
    packed: bool = False
    """Whether the last pull was answered in blocks, as msgpack is. Pulls take turns, which draws no number."""

    def work(self) -> None:
        if self.world.plan.steady and self.rng.random() < self.world.plan.steady:
            for _ in range(8):
                self._pull_on()
            self.nap(self.rng.choice((100, 900 * self.world.plan.lease_seconds)))
            return
        roll = self.rng.random()
        if self.held and roll < 0.7:
            self._settle(self.held[int(self.rng.random() * len(self.held))])
        elif self.spent and roll < 0.75:
            self._settle(self.rng.choice(self.spent))
        else:
            self._pull()
        if self.rng.random() < 0.4:
            self.nap(self.rng.choice((100, 800, 4_000)))

    def _pull(self) -> None:
        plan = self.world.plan
        subject, group = self.rng.choice(plan.subjects), self.rng.choice(plan.groups)
        old = self._wanted(subject, group)
        chosen = None if old is None else self._choose(old)
        request = PullRequest(
            consumer=self._consumer(group),
            max_messages=self.rng.choice((1, 2, 3, 100)),
            wait_seconds=self.rng.choice((0, 0, 0, 1)),
            lease_seconds=plan.lease_seconds,
            settle=None if chosen is None else [chosen],
        )
        self.pull(subject, group, request, old)

    def pull(self, subject: str, group: str, request: PullRequest, old: Leased | None = None) -> None:
        """Pulls, and settles ``old`` by the same call if the request does so."""
        chosen = request.settle[0] if request.settle else None
        verb, result = self.ask(
            "pull",
            lambda: self._answer(subject, group, request),
            group=group,
            consumer=request.consumer,
            row=None if old is None else (old.partition, old.row),
            chosen=chosen,
            delays=delays_of(chosen),
            lease_seconds=request.lease_seconds,
        )
        if result is None:
            return
        self.history.audit.members.pulled(subject, group, request.consumer, verb)
        self.history.audit.shares.pulled(verb)
        if old is not None and chosen is not None and result.settled is not None:
            self._answered(verb, old, chosen, result.settled[0])
        self.held += self.history.pulled(verb, subject, group, result)

    def _answer(self, subject: str, group: str, request: PullRequest) -> PullResult:
        """Pulls in the two forms of answers by turns, and returns the answer in the form that JSON has."""
        # Blocks are passed on unread: bytes that are wrong under a correct checksum show at the client only.
        self.packed = not self.packed and not self.world.plan.faults.damage
        if self.packed:
            return as_messages(self.deployment.pull_blocks(subject, group, request))
        return self.deployment.pull(subject, group, request)

    def _consumer(self, group: str) -> str:
        """Returns the consumer as which the actor pulls: in a broadcast group one of two, who leave for others after a
        while, and come back."""
        seconds = self.world.plan.broadcast_seconds
        if not seconds or group != self.world.plan.groups[-1]:
            return self.process.name
        turn = self.world.now_ms // (2_000 * seconds)
        return f"m{(turn + (self.rng.random() < 0.5)) % 3}"

    def _pull_on(self) -> None:
        """Pulls as a program that handles its pulls one after the other: acknowledges the last one by the next."""
        plan = self.world.plan
        subject, group = plan.subjects[0], plan.groups[crc32(self.process.name.encode()) % len(plan.groups)]
        mine = [held for held in self.held if (held.subject, held.group) == (subject, group)]
        left = 2 if self._holds_two else 1
        for held in mine[:-left]:
            self.settle(held, self._acknowledged(held))
        if self.spent and self.rng.random() < 0.15:
            self._settle(self.rng.choice(self.spent))
        # One that settles out of order holds the older of its pulls.
        old = mine[-1 if self._manner == _OUT_OF_ORDER else -left] if len(mine) >= left else None
        chosen = None
        if old is not None:
            chosen = self._choose(old) if self.rng.random() < 0.1 else self._acknowledged(old)
        request = PullRequest(
            consumer=self._consumer(group),
            max_messages=self.rng.choice((1, 1, 2, 3) if plan.crowd else (1, 3, 5, 5, 5, 100)),
            lease_seconds=plan.lease_seconds,
            settle=None if chosen is None else [chosen],
        )
        self.pull(subject, group, request, old)
        # Messages wait when the handler is done: otherwise there is nothing to claim.
        self.nap(self.rng.choice((0, 10, 50, 100) if plan.crowd else (0, 50, 100, 300, 800)))

    @property
    def _holds_two(self) -> bool:
        """Whether the actor pulls while it handles the messages of its last pull: two of four in a crowd do."""
        return bool(self.world.plan.crowd) and self._manner in (_PREFETCHES, _OUT_OF_ORDER)

    @property
    def _manner(self) -> int:
        return crc32(f"{self.world.plan.seed} {self.process.name}".encode()) % 4

    def _acknowledged(self, held: Leased) -> Settlement:
        chosen = Settlement(receipt=held.receipt)
        held.asks(chosen)
        return chosen

    def _wanted(self, subject: str, group: str) -> Leased | None:
        wanted = [held for held in self.held if (held.subject, held.group) == (subject, group)]
        return self.rng.choice(wanted) if wanted and self.rng.random() < 0.5 else None

    def _settle(self, held: Leased) -> None:
        self.settle(held, self._choose(held))

    def settle(self, held: Leased, chosen: Settlement) -> None:
        verb, result = self.ask(
            "settle",
            lambda: self.deployment.settle(held.subject, held.group, [chosen]),
            row=(held.partition, held.row),
            chosen=chosen,
            delays=delays_of(chosen),
            extend_seconds=chosen.extend_seconds,
        )
        if result is not None:
            self._answered(verb, held, chosen, result[0])

    def _answered(self, verb: Verb, held: Leased, chosen: Settlement, answer: Settled) -> None:
        self.history.settled(verb, held, chosen, answer)
        if answer.status in ("settled", "stale") and held in self.held:
            self.held.remove(held)
            self.spent = [*self.spent[-3:], held]

    def _choose(self, held: Leased) -> Settlement:
        roll, size = self.rng.random(), len(held.bodies)
        some = [index for index in range(size) if self.rng.random() < 0.5]
        rest = [index for index in range(size) if index not in some and self.rng.random() < 0.5]
        if roll < 0.1:
            return Settlement(receipt=held.receipt, extend_seconds=self.world.plan.lease_seconds)
        if roll < 0.5:
            chosen = Settlement(receipt=held.receipt)
        elif roll < 0.75:
            chosen = Settlement(receipt=held.receipt, retry=[self._again(index) for index in some])
            other = self.rng.choice(("dead", "release", ""))
            if other:
                setattr(chosen, other, rest)
        else:
            chosen = Settlement(receipt=held.receipt, ack=some, retry=rest)
        held.asks(chosen)
        return chosen

    def _again(self, index: int) -> int | RetryLater:
        delays = self.world.plan.delays
        if delays is None or not delays.own_retries or self.rng.random() < 0.5:
            return index
        delay = f"{self.rng.choice((0, 200, 3_000, 90_000))}ms"
        return RetryLater(index=index, delay=delay, detail=f"{self.process.name} failed on message {index}")


def delays_of(chosen: Settlement | None) -> dict[int, int]:
    """Returns the delays that a consumer chose, in milliseconds, by the index of the message."""
    entries = (chosen.retry or ()) if chosen is not None else ()
    delays = {entry.index: entry.delay for entry in entries if isinstance(entry, RetryLater)}
    return {index: delay_ms(delay, "") for index, delay in delays.items() if delay is not None}
