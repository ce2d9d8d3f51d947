"""Implements sweepers and operators: actors that sweep, and actors that administer subjects, groups and dead
letters."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from hourwheel.groups.early_retries import EarlyRetries, RetryFilter
from hourwheel.groups.seeks import offsets
from hourwheel.logs.large_batches import drop_expired_batches
from hourwheel.model.messages import Message
from hourwheel.model.pulls import PullRequest
from hourwheel.retention.watermarks import archived_ms
from hourwheel.sweep.shares import Share, shares_of
from tests.simulation.actors import Actor
from tests.simulation.couriers import target_of
from tests.simulation.draws import FILTERS
from tests.simulation.faults import OUTAGES, Outage
from tests.simulation.world import Violation

_MOST_SWEEPS = 20  # far more than there are subjects


def sweep_all(actor: Actor) -> None:
    """Sweeps all shares in turn, each until one of its sweeps comes to the end of the subjects."""
    left = shares_of(actor.world.plan.shares)
    for _ in range(_MOST_SWEEPS):
        left = [share for share in left if not _completes(actor, share)]
        if not left:
            return
    raise Violation("sweep", "no sweep comes to the end of the subjects")


def _completes(actor: Actor, share: Share) -> bool:
    _, report = actor.ask("sweep", partial(actor.deployment.sweeper.sweep, share))
    return report is None or report.is_complete


@dataclass
class SweepingActor(Actor):
    def work(self) -> None:
        delays = self.world.plan.delays
        if delays is not None and delays.prompt and delays.precise:
            # Timers that are lost are missed within a minute only if the sweeper comes each minute.
            self.process.sleep(60)
        else:
            self.nap(3_000)
        self._sweep()
        if self.rng.random() < 0.2:
            context, now_ms = self.deployment.context, self.process.now_ms()
            self.ask(
                "drop segments",
                lambda: drop_expired_batches(context.blobs, min(now_ms, archived_ms(context))),
            )

    def _sweep(self) -> None:
        plan, buckets = self.world.plan, self.history.audit.buckets
        prompt = plan.delays is not None and plan.delays.prompt
        certain = {name: history.certain_changes() for name, history in buckets.items()} if prompt else {}
        began_at = self.world.calls
        number = self.rng.randint(1, plan.shares) if plan.shares > 1 else 1
        for share in shares_of(number):
            self.ask("sweep", partial(self.deployment.sweeper.sweep, share))
        for name, picks in certain.items():
            buckets[name].check_swept(picks, began_at)


@dataclass
class Operator(Actor):
    def work(self) -> None:
        self.nap(2_500)
        plan = self.world.plan
        move = self.rng.choice(plan.moves)
        subject, group = self.rng.choice(plan.subjects), self.rng.choice(plan.groups)
        getattr(self, "_" + move.replace("-", "_"))(subject, group)

    def _redrive(self, subject: str, group: str) -> None:
        self.redrive(subject, group, self.rng.choice(((0,), (1,), (0, 1), (0, 1))))

    def redrive(self, subject: str, group: str, wanted: tuple[int, ...]) -> None:
        self.ask(
            "redrive",
            lambda: self.deployment.dead_letters(subject, group).redrive(lambda at, _: at.index % 2 in wanted),
        )

    def _drop(self, subject: str, group: str) -> None:
        if self.rng.random() < 0.4:
            self.drop(subject, group)

    def drop(self, subject: str, group: str) -> None:
        self.ask("drop", lambda: self.deployment.dead_letters(subject, group).drop(lambda at, _: at.row_no % 2 == 0))

    def _seek(self, subject: str, group: str) -> None:
        roll = self.rng.random()
        if roll < 0.4:
            self.seek(subject, group, to="start")
        elif roll < 0.6:
            self.seek_offset(subject, group, self.rng.randrange(12))
        elif roll < 0.8:
            self.seek_time(subject, group, self.process.now_ms() - self.rng.randrange(8_000))
        else:
            self.seek(subject, group, to="end")

    def seek(self, subject: str, group: str, *, to: Literal["start", "end"]) -> None:
        self.ask("seek", lambda: offsets(self.deployment.seeks().seek(subject, group, to=to)), to=to)

    def seek_offset(self, subject: str, group: str, offset: int) -> None:
        self.ask("seek", lambda: offsets(self.deployment.seeks().seek_offset(subject, group, 0, offset)), offset=offset)

    def seek_time(self, subject: str, group: str, at_ms: int) -> None:
        self.ask("seek", lambda: offsets(self.deployment.seeks().seek_time(subject, group, at_ms)), at_ms=at_ms)

    def _retention(self, subject: str, _: str) -> None:
        seconds = self.rng.choice((60, 3_600, 259_200))
        self.ask("retention", lambda: self.deployment.subjects.put(subject, retention_seconds=seconds), seconds=seconds)

    def _queues(self, subject: str, _: str) -> None:
        self.queues(subject)

    def queues(self, subject: str) -> None:
        self.ask("queues", lambda: self.deployment.subjects.put(subject, queues=2))

    def _move(self, subject: str, _: str) -> None:
        cells = ["home", *(f"c{number}" for number in range(self.world.plan.cells))]
        self.move(subject, self.rng.randrange(2), self.rng.choice(cells))

    def move(self, subject: str, queue: int, cell: str) -> None:
        self.ask("move", lambda: self.deployment.routes.move(subject, queue, cell), queue=queue, cell=cell)

    def _withdraw(self, subject: str, _: str) -> None:
        self.withdraw(subject, self.rng.choice((0, 1, None)))

    def withdraw(self, subject: str, queue: int | None) -> None:
        self.ask("withdraw", lambda: self.deployment.routes.withdraw(subject, queue), queue=queue)

    def _drain(self, _: str, __: str) -> None:
        self.drain()

    def drain(self) -> None:
        self.ask("drain", lambda: self.deployment.cells.drain("c0"))

    def _undrain(self, _: str, __: str) -> None:
        self.undrain()

    def undrain(self) -> None:
        self.ask("undrain", lambda: self.deployment.cells.set_state("c0", "normal"))

    def _outage(self, _: str, __: str) -> None:
        """Takes a cell out of reach for some time, in the middle of its requests."""
        cell = f"c{self.rng.randrange(self.world.plan.cells)}"
        self.outage(cell, self.rng.choice(OUTAGES), self.rng.choice((500, 4_000, 30_000)))

    def outage(self, cell: str, kind: str, length_ms: int) -> None:
        self.world.outages[cell] = Outage(self.world.now_ms + length_ms, kind)
        self.world.record(self.process.name, "outage", cell, kind)

    def _attempts(self, subject: str, group: str) -> None:
        attempts = self.rng.choice((1, 2, 5))
        self.ask("attempts", lambda: self.deployment.groups.put(subject, group, max_attempts=attempts))

    def _leave(self, subject: str, group: str) -> None:
        plan = self.world.plan
        broadcasts = plan.broadcast_seconds and group == plan.groups[-1]
        consumer = f"m{self.rng.randrange(3)}" if broadcasts else f"c{self.rng.randrange(plan.consumers)}"
        self.ask("leave", lambda: self.deployment.groups.leave(subject, group, consumer), consumer=consumer)

    def _refilter(self, subject: str, group: str) -> None:
        wanted = self.rng.choice((None, *FILTERS))
        self.ask("refilter", lambda: self.deployment.groups.put(subject, group, filter=wanted))

    def _latest(self, subject: str, _: str) -> None:
        self.latest(subject)

    def latest(self, subject: str) -> None:
        """Creates a group that begins at the latest message, and pulls for it."""
        self.ask("latest", lambda: self.deployment.groups.put(subject, "latest", start="latest"))
        request = PullRequest(consumer=self.process.name, lease_seconds=1)
        verb, result = self.ask("pull", lambda: self.deployment.pull(subject, "latest", request))
        if result is not None:
            self.history.pulled(verb, subject, "latest", result)

    def _decide(self, subject: str, group: str) -> None:
        """Decides about stopped keys of an ordered group."""
        keys = self.rng.choice((None, frozenset("0"), frozenset("1")))
        then: Literal["retry", "dead"] = self.rng.choice(("retry", "dead"))
        self.ask("decide", lambda: self.deployment.groups.decide(subject, group, keys, then), keys=keys, then=then)

    def _target(self, subject: str, _: str) -> None:
        """Changes or removes the target of the pushed group."""
        pushed = self.world.plan.groups[0]
        target = target_of(self.rng.randrange(4), self.world.plan.concurrency) if self.rng.random() < 0.6 else None
        self.ask("target", lambda: self.deployment.groups.put(subject, pushed, push=target))

    def _pause(self, subject: str, group: str) -> None:
        """Pauses a group, or the whole subject, for a while."""
        whole = self.rng.random() < 0.3
        self.pause(subject, group, whole=whole, paused=True)
        self.nap(6_000)
        self.pause(subject, group, whole=whole, paused=False)

    def _close(self, subject: str, _: str) -> None:
        """Makes the subject read-only for a while."""
        self.close(subject, read_only=True)
        self.nap(6_000)
        self.close(subject, read_only=False)

    def close(self, subject: str, *, read_only: bool) -> None:
        self.ask("close", lambda: self.deployment.subjects.put(subject, read_only=read_only), read_only=read_only)

    def pause(self, subject: str, group: str, *, whole: bool, paused: bool) -> None:
        if whole:
            self.ask("pause", lambda: self.deployment.subjects.pause(subject, paused=paused), paused=paused)
        else:
            self.ask(
                "pause", lambda: self.deployment.groups.pause(subject, group, paused=paused), group=group, paused=paused
            )

    def _lag(self, subject: str, group: str) -> None:
        self.lag(subject, group)

    def lag(self, subject: str, group: str) -> None:
        self.ask("lag", lambda: self.deployment.groups.lag(subject, group))
        self.ask("dead", lambda: self.deployment.dead_letters(subject, group).page(after=None, limit=10))

    def _pending(self, subject: str, _: str) -> None:
        self.pending(subject)

    def pending(self, subject: str) -> None:
        self.ask("pending", lambda: self.deployment.delayed.pending(subject, hours=48))

    def _hurry(self, subject: str, group: str) -> None:
        self.hurry(subject, group)

    def hurry(self, subject: str, group: str) -> None:
        """Retries at once what waits for the delay of its retry."""
        waited = self.history.hurries.begins(subject, group)
        after = None
        while True:
            retry = partial(self._retry, subject, group, after)
            verb, answer = self.ask("retry now", retry, subject=subject, group=group)
            after = None if answer is None else answer.next
            if after is None:
                break
        self.history.hurries.ended(verb, waited, done=answer is not None)

    def _retry(self, subject: str, group: str, after: str | None) -> EarlyRetries:
        # Opened in the call that is judged: reading the registry may be throttled.
        return self.deployment.groups.backing_off(subject, group).retry(RetryFilter(), after)

    def _letters(self, subject: str, group: str) -> None:
        """Reads the dead letters of the first page one by one."""
        _, page = self.ask("dead", lambda: self.deployment.dead_letters(subject, group).page(after=None, limit=3))
        for message in page.messages if page else ():
            read = partial(self._letter, subject, group, message.dead_id or "")
            _, found = self.ask("letter", read, dead_id=message.dead_id)
            if found is not None and found.body != message.body:
                raise Violation("1", f"dead letter {message.dead_id} is {found.body}, it was {message.body}")

    def _letter(self, subject: str, group: str, dead_id: str) -> Message:
        # Opened in the call that is judged: reading the registry may be throttled.
        return self.deployment.dead_letters(subject, group).get(dead_id)

    def _delete_group(self, subject: str, group: str) -> None:
        self.delete_group(subject, group)

    def delete_group(self, subject: str, group: str) -> None:
        self.ask("delete-group", lambda: self.deployment.groups.delete(subject, group))

    def _delete_subject(self, subject: str, _: str) -> None:
        self.delete_subject(subject)

    def delete_subject(self, subject: str) -> None:
        self.ask("delete-subject", lambda: self.deployment.subjects.delete(subject))
