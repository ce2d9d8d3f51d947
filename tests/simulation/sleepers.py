"""Implements the consumers of groups that doze."""

from dataclasses import dataclass, field
from functools import partial

from hourwheel.dozing.rests import SAFETY_SECONDS
from hourwheel.model.pulls import PullRequest, Settlement, WakeupQueue
from tests.simulation.actors import Actor
from tests.simulation.dozeplans import DozePlan
from tests.simulation.history import Leased
from tests.simulation.world import Crashed, Violation

LEASE_SECONDS = 30
_STEP_SECONDS = 0.1


@dataclass
class Ended:
    """The number of producers that have not ended, and the time at which the consumers end."""

    producing: int
    at_ms: int | None = None


@dataclass
class Sleeper(Actor):
    """A consumer that rests as the server says, until the run ends. As the client does, it pulls while it handles
    messages. One that ``leaves`` stops now and then, while others of its group are there."""

    doze: DozePlan | None = None
    group: str = "a"
    leaves: bool = False
    ended: Ended = field(default_factory=lambda: Ended(0))
    taken: list[tuple[int, str]] = field(default_factory=list)
    """The messages that the consumer got, each with its time."""
    returned: list[tuple[int, str]] = field(default_factory=list)
    """The messages that the consumer gave back, each with its time."""
    handling: list[tuple[int, Leased]] = field(default_factory=list)
    """The pulls whose messages are being handled, each with the time at which that ends."""
    begins_ms: int = 0
    held: str = ""
    """The queue of the wake-up that the consumer has received, until the server names a queue again."""

    def live(self) -> None:
        self.process.sleep(self.rng.random() * self.drawn.late_seconds)
        self.begins_ms = self.world.now_ms
        wakeup, last_ms = "able", self.world.now_ms
        while not self.over:
            try:
                if self.leaves and self.happens(self.stop_rate):
                    self.stop()
                    wakeup, last_ms = "able", self.world.now_ms
                self.settle_due()
                wakeup, last_ms = self._turn(wakeup, last_ms)
            except Crashed:
                self.held = ""
                self.handling.clear()
                self.open()
                self.process.sleep(1)
                wakeup = "able"

    @property
    def drawn(self) -> DozePlan:
        assert self.doze is not None
        return self.doze

    @property
    def most(self) -> tuple[int, ...]:
        """The numbers of messages for which the consumer asks."""
        return (1, 2, 100) if len(self.world.plan.groups) < 3 else (10, 100)

    @property
    def stop_rate(self) -> float:
        """The rate per pull at which the consumer stops."""
        return self.drawn.stops

    @property
    def over(self) -> bool:
        return self.ended.at_ms is not None and self.world.now_ms >= self.ended.at_ms

    def happens(self, rate: float) -> bool:
        return not self.machine.queues.calm and self.rng.random() < rate

    def stop(self) -> None:
        """Stops as the client does: settles its handled messages, and gives back a wake-up that it has received. Starts
        again later, as another process."""
        self.world.record(self.process.name, "stops", self.held)
        while self.handling:
            self._settle(self.handling.pop()[1])
        if self.held:
            self.machine.queues.give_back(self.held)
            self.held = ""
        away_seconds = self.rng.randint(1, 60)
        while away_seconds and not self.over:
            self.process.sleep(1)
            away_seconds -= 1
        self.open()

    def handled(self) -> Leased | None:
        """Returns the pull that the next one acknowledges; None if none does."""
        return None

    def handles_ms(self) -> int:
        """Returns how long the consumer handles the messages of a pull."""
        slow = self.happens(self.drawn.slow)
        return slow * self.rng.randint(1_000, 10_000)

    def _turn(self, wakeup: str, last_ms: int) -> tuple[str, int]:
        old = self.handled()
        chosen = None if old is None else Settlement(receipt=old.receipt)
        if old is not None and chosen is not None:
            old.asks(chosen)
        request = PullRequest(
            consumer=self.process.name,
            max_messages=self.rng.choice(self.most),
            lease_seconds=LEASE_SECONDS,
            wait_seconds=self.rng.choice((0.0, 2.0)),
            idle_seconds=(self.world.now_ms - last_ms) / 1_000,
            wakeup=wakeup,
            settle=None if chosen is None else [chosen],
        )
        verb, result = self.ask(
            "pull",
            lambda: self.deployment.pull("s", self.group, request),
            group=self.group,
            consumer=request.consumer,
            lease_seconds=LEASE_SECONDS,
            row=None if old is None else (old.partition, old.row),
            chosen=chosen,
        )
        if result is None:
            self.process.sleep(1)
            return wakeup, last_ms
        if old is not None and chosen is not None and result.settled is not None:
            self.history.settled(verb, old, chosen, result.settled[0])
            self.handling = [entry for entry in self.handling if entry[1] is not old]
        for held in self.history.pulled(verb, "s", self.group, result):
            last_ms = self.world.now_ms
            self.taken += [(last_ms, body) for body in held.bodies]
            self.handling.append((last_ms + self.handles_ms(), held))
        self.settle_due()
        if result.wakeup is None:
            self.process.sleep(max(0.01, result.next_pull_seconds))
            return "able", last_ms
        self.held = ""
        return self._wait_at(result.wakeup), last_ms

    def settle_due(self) -> None:
        """Settles the pulls whose messages are handled by now."""
        now_ms = self.world.now_ms
        due, self.handling = (
            [held for at_ms, held in self.handling if at_ms <= now_ms],
            [one for one in self.handling if one[0] > now_ms],
        )
        for held in due:
            self._settle(held)

    def _settle(self, held: Leased) -> None:
        """Settles the messages, and gives the first one back now and then."""
        back = self.rng.random() < self.drawn.back
        way = self.rng.choice(("retry", "release"))
        chosen = Settlement(receipt=held.receipt, **({way: [0]} if back else {}))
        held.asks(chosen)
        verb, answer = self.ask(
            "settle",
            partial(self.deployment.settle, "s", self.group, [chosen]),
            row=(held.partition, held.row),
            chosen=chosen,
        )
        if answer is not None:
            self.history.settled(verb, held, chosen, answer[0])
            if back and answer[0].status == "settled":
                self.returned.append((verb.began_ms, held.bodies[0]))

    def _wait_at(self, queue: WakeupQueue) -> str:
        queues = self.machine.queues
        until_ms = self.world.now_ms + round(1_000 * queue.wait_seconds)
        if queue.wait_seconds > SAFETY_SECONDS:
            raise Violation("doze", f"a consumer is told to wait for {queue.wait_seconds} s")
        while self.world.now_ms < until_ms and not self.over:
            heard = queues.receive(queue.url)
            if heard is not None:
                self.held = queue.url if heard == "woken" else ""
                return heard
            if self.leaves and self.happens(self.drawn.stops * _STEP_SECONDS):
                self.stop()
                break
            self.settle_due()
            self.process.sleep(_STEP_SECONDS)
        return "able"


@dataclass
class CrowdSleeper(Sleeper):
    """A consumer that handles one pull after the other: the next pull acknowledges the last one. One that ``leaves``
    now and then stops without a settlement."""

    def handled(self) -> Leased | None:
        if len(self.handling) != 1:
            return None
        until_ms, held = self.handling[0]
        while self.world.now_ms < until_ms and not self.over:
            self.process.sleep((until_ms - self.world.now_ms) / 1_000)
        if self.rng.random() >= self.drawn.back:
            return held
        super().settle_due()
        return None

    @property
    def most(self) -> tuple[int, ...]:
        return (1, 1, 2)

    @property
    def stop_rate(self) -> float:
        logs = self.history.audit.pulls
        kept = any(logs[held.partition].pulls[held.row].value.kept for _, held in self.handling)
        return self.drawn.stops * (10 if kept else 1)

    def handles_ms(self) -> int:
        quick = self.rng.choice((50, 100, 150))
        return quick + (super().handles_ms() if self.leaves else 0)

    def settle_due(self) -> None:
        if len(self.handling) > 1:
            super().settle_due()

    def stop(self) -> None:
        if self.rng.random() < 0.5:
            self.world.record(self.process.name, "stops without a settlement")
            self.handling.clear()
        super().stop()
