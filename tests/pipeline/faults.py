"""Makes faults of a system, each in a subject of its own with the name of the fault."""

from collections.abc import Callable
from typing import Any

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.delay.ownership import Dispatched
from hourwheel.handover.handover import Transfer
from hourwheel.logs.codec import encode
from hourwheel.logs.entries import CancelMarker, encode_entry
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row, row_key, sort_of, to_record
from hourwheel.model.messages import Message, NewMessage
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, PullRow
from hourwheel.times import rfc3339
from tests.pipeline.worlds import HOUR, World

GROUP = "billing"
FAULTS: dict[str, tuple[Callable[["Scene"], None], list[str]]] = {}


def fault(*kinds: str) -> Callable[[Callable[["Scene"], None]], Callable[["Scene"], None]]:
    """Registers a fault, and the findings to which it leads."""

    def known(act: Callable[["Scene"], None]) -> Callable[["Scene"], None]:
        FAULTS[act.__name__.replace("_", "-")] = act, list(kinds)
        return act

    return known


class Scene:
    """A subject with one group. The methods change its logs without the cell."""

    def __init__(self, world: World, subject: str) -> None:
        self.world, self.bench, self.subject = world, world.bench, subject
        self.where = {"subject": subject, "group": GROUP}
        self.bench.deployment.groups.put(subject, GROUP, max_attempts=3)
        self.group = self.bench.deployment.groups.get(subject, GROUP)
        self.queue = f"{subject}~1/0"

    def pull(self, limit: int = 100, **settled: Any) -> None:
        """Takes messages and settles them."""
        for pull in self.bench.pull(limit, **self.where):
            self.bench.settle(pull, **self.where, **settled)
            self.bench.clock.pass_time(0.01)

    def finish(self) -> None:
        self.world.acknowledge(**self.where)

    def change_pull(self, number: int, change: Callable[[PullRow], PullRow]) -> None:
        context = self.bench.deployment.context
        record = PullLog(context, self.group, context.log(self.queue), 0).record(number)
        current = record.load()
        assert current is not None
        assert record.swap(current, change(current.value)).stored

    def change_row(self, log: str, number: int, change: Callable[[Row], Row]) -> None:
        key = row_key(log, number)
        record = self.bench.store.get(key)
        row = self.bench.deployment.context.log(log).get(number)
        assert record is not None
        assert row is not None
        changed = to_record(change(row), b"changed", 86_400_000)
        assert self.bench.store.put(key, changed, expect=record.token) is None

    def empty(self, log: str, number: int) -> None:
        self.change_row(
            log, number, lambda row: msgspec.structs.replace(row, first_seq=-1, count=0, block=b"", raw_bytes=0)
        )

    def messages(self, log: str, number: int) -> list[Message]:
        row = self.bench.deployment.context.log(log).get(number)
        assert row is not None
        return messages_of(row, self.bench.blobs)

    def append(self, log: str, *messages: Message, note: bytes = b"", expires: bool = True) -> int:
        now_ms = self.world.now_ms
        block = encode(messages)
        row = Row(
            first_seq=-1,
            count=len(messages),
            at_ms=now_ms,
            expires_ms=now_ms + 2 * 86_400_000 if expires else 0,
            raw_bytes=block.raw_bytes,
            block=block.data,
            meta=note,
        )
        return self.bench.deployment.context.log(log).append(row).row_no

    def later(self, delay: float) -> Bucket:
        """Sends a message that is due after the delay. Returns its bucket."""
        self.bench.send_later("m", delay=delay, subject=self.subject)
        settings = self.bench.deployment.context.settings
        return Bucket.at(self.world.now_ms + round(delay * 1_000), settings.bucket_minutes)

    def dispatch(self, bucket: Bucket) -> tuple[int, Dispatched, int, Transfer]:
        """Returns the dispatch row that names a message of this subject, and the transfer in it."""
        found = self.bench.store.scan(Table.DISPATCH, bucket.name, limit=1_000)
        for sort, record in reversed(found):
            value = msgspec.msgpack.decode(record.value, type=Dispatched)
            for at, transfer in enumerate(value.transfers):
                if transfer.log.startswith(f"{self.subject}~"):
                    return int(sort), value, at, transfer
        raise AssertionError(f"nothing of {self.subject} was dispatched")

    def put_dispatch(self, bucket: Bucket, number: int, value: Dispatched) -> None:
        key = Key(Table.DISPATCH, bucket.name, sort_of(number))
        there = self.bench.store.get(key)
        record = Record(msgspec.msgpack.encode(value), b"changed")
        assert self.bench.store.put(key, record, expect=None if there is None else there.token) is None


def _counts(*counts: int) -> Callable[[PullRow], PullRow]:
    return lambda row: msgspec.structs.replace(row, counts=counts)


def _begins(index: int, *counts: int) -> Callable[[PullRow], PullRow]:
    return lambda row: msgspec.structs.replace(row, first=Position(0, index), counts=counts)


def _copy(offset: int, **fields: Any) -> Message:
    return Message(body="m", id=f"copy-{offset}", queue=0, offset=offset, **fields)


@fault("lost", "lost")
def handed_out_in_part(scene: Scene) -> None:
    scene.bench.send(*"abcde", subject=scene.subject)
    scene.pull()
    scene.change_pull(0, _counts(3))


@fault("lost")
def begun_behind_its_predecessor(scene: Scene) -> None:
    scene.bench.send(*"abcde", subject=scene.subject)
    scene.pull(2)
    scene.pull(3)
    scene.change_pull(1, _begins(3, 2))


@fault("skipped")
def passed_and_sought(scene: Scene) -> None:
    scene.bench.send(*"abcde", subject=scene.subject)
    scene.pull(2)
    scene.pull(3)
    scene.bench.deployment.seeks().seek(scene.subject, GROUP, to="start")
    scene.pull()
    scene.change_pull(1, _counts(2))


@fault("phantom")
def made_up(scene: Scene) -> None:
    scene.bench.send(*"ab", subject=scene.subject)
    scene.pull()
    scene.change_pull(0, _counts(3))


@fault("doubled_delivery")
def handed_out_twice(scene: Scene) -> None:
    scene.bench.send(*"abcde", subject=scene.subject)
    scene.pull(3, retry=[2])
    scene.finish()
    scene.change_pull(1, _begins(2, 3))


@fault("settled_redelivered")
def handed_out_after_it_was_settled(scene: Scene) -> None:
    scene.bench.send(*"abcde", subject=scene.subject)
    scene.pull(3)
    scene.pull()
    scene.change_pull(1, _begins(2, 3))


@fault("settled_redelivered")
def given_up_after_it_was_settled(scene: Scene) -> None:
    scene.bench.send(*"ab", subject=scene.subject)
    scene.pull()
    scene.append(scene.group.dead_log, _copy(1, attempt=1, died_at=rfc3339(scene.world.now_ms), reason="rejected"))


@fault("lost_handover")
def not_tried_again(scene: Scene) -> None:
    scene.bench.send(*"ab", subject=scene.subject)
    scene.pull(retry=[1])
    scene.empty(scene.group.retry_log, 0)


@fault("lost_handover")
def given_up_to_nowhere(scene: Scene) -> None:
    scene.bench.send(*"ab", subject=scene.subject)
    scene.pull(dead=[0])
    scene.empty(scene.group.dead_log, 0)


@fault("doubled_handover")
def tried_again_twice(scene: Scene) -> None:
    scene.bench.send(*"ab", subject=scene.subject)
    scene.pull(retry=[1])
    scene.append(scene.group.retry_log, *scene.messages(scene.group.retry_log, 0))
    scene.finish()


@fault("orphaned_copy")
def given_up_by_nobody(scene: Scene) -> None:
    scene.bench.send(*"ab", subject=scene.subject)
    scene.append(scene.group.dead_log, _copy(1, attempt=1, died_at=rfc3339(scene.world.now_ms), reason="rejected"))


@fault("doubled_handover")
def redriven_twice(scene: Scene) -> None:
    scene.bench.send("a", subject=scene.subject)
    scene.pull(dead=[0])
    assert scene.bench.deployment.dead_letters(scene.subject, GROUP).redrive(lambda *_: True) == 1
    scene.append(scene.group.retry_log, *scene.messages(scene.group.retry_log, 0))
    scene.finish()


@fault("over_attempts")
def tried_too_often(scene: Scene) -> None:
    scene.bench.send("a", subject=scene.subject)
    scene.pull(retry=[0])

    def often(row: Row) -> Row:
        (message,) = messages_of(row, scene.bench.blobs)
        block = encode([msgspec.structs.replace(message, attempt=9)])
        return msgspec.structs.replace(row, block=block.data, raw_bytes=block.raw_bytes)

    scene.change_row(scene.group.retry_log, 0, often)
    scene.finish()


@fault("stuck_pull")
def held_for_long(scene: Scene) -> None:
    scene.bench.send("a", subject=scene.subject)
    assert scene.bench.pull(**scene.where, lease=10)
    scene.bench.clock.pass_time(3_000)
    scene.finish()


@fault("lost_dispatch")
def dispatched_to_nowhere(scene: Scene) -> None:
    scene.later(30)
    scene.bench.turn(HOUR)  # until then its wheel would mend it
    scene.empty(scene.queue, 0)


@fault("doubled_dispatch")
def dispatched_twice(scene: Scene) -> None:
    bucket = scene.later(30)
    scene.bench.turn(HOUR)
    number, value, _, transfer = scene.dispatch(bucket)
    row = scene.append(scene.queue, *scene.messages(scene.queue, 0))
    again = msgspec.structs.replace(transfer, row_no=row, first_seq=1)
    scene.put_dispatch(bucket, number, msgspec.structs.replace(value, transfers=(*value.transfers, again)))
    scene.finish()


@fault("orphaned_copy")
def dispatched_by_nobody(scene: Scene) -> None:
    scene.append(scene.queue, Message(body="m", id="m", due_at=rfc3339(scene.world.now_ms - 1_000)))
    scene.finish()


@fault("orphaned_copy")
def moved_from_nowhere(scene: Scene) -> None:
    bucket = scene.later(30)
    log = scene.bench.deployment.context.log(bucket.log)
    (number,) = [row for row, held in log.rows(0) if held.meta and held.count and scene.subject.encode() in held.meta]
    row = log.get(number)
    assert row is not None
    (message,) = scene.messages(bucket.log, number)
    born = msgspec.structs.replace(message, produced_at=rfc3339(row.at_ms))
    scene.append(bucket.log, born, note=row.meta, expires=False)
    scene.bench.turn(40)
    scene.finish()


@fault("early")
def dispatched_early(scene: Scene) -> None:
    bucket = scene.later(300)
    scene.bench.turn(310)
    number, value, at, transfer = scene.dispatch(bucket)
    early = msgspec.structs.replace(transfer, at_ms=transfer.at_ms - 100_000)
    transfers = (*value.transfers[:at], early, *value.transfers[at + 1 :])
    scene.put_dispatch(bucket, number, msgspec.structs.replace(value, transfers=transfers))
    scene.finish()


@fault("early")
def pulled_early(scene: Scene) -> None:
    scene.later(300)
    scene.bench.turn(310)
    scene.finish()
    scene.change_pull(0, lambda row: msgspec.structs.replace(row, claimed_ms=row.claimed_ms - 100_000))


@fault("late")
def dispatched_late(scene: Scene) -> None:
    scene.later(10)
    scene.bench.clock.pass_time(200)
    scene.bench.turn(1)
    scene.finish()


@fault("cancelled_dispatched")
def dispatched_though_cancelled(scene: Scene) -> None:
    bucket = scene.later(900)
    scene.bench.turn(910)
    *_, transfer = scene.dispatch(bucket)
    ((row, index),) = transfer.picks
    cancel_marker = Row(
        first_seq=-1,
        count=0,
        at_ms=scene.world.now_ms - 800_000,
        expires_ms=0,
        meta=encode_entry(CancelMarker(row, index)),
    )
    scene.bench.deployment.context.log(bucket.log).append(cancel_marker)
    scene.finish()


def _with_another_queue(scene: Scene) -> None:
    """Adds a queue: the first one goes on in another part, in which the scene plays from then on."""
    scene.bench.send("z", subject=scene.subject)
    scene.pull()
    scene.bench.deployment.routes.add_queues(scene.subject, 2)
    scene.queue = f"{scene.subject}~1/0.1"


@fault("lost")
def passed_at_the_start_of_a_later_part(scene: Scene) -> None:
    _with_another_queue(scene)
    scene.bench.deployment.produce(scene.subject, [NewMessage(body=body, queue=0) for body in "abc"])
    scene.pull()
    scene.change_pull(0, _begins(1, 2))


@fault("settled_redelivered")
def given_up_after_it_was_settled_in_a_later_part(scene: Scene) -> None:
    _with_another_queue(scene)
    scene.bench.deployment.produce(scene.subject, [NewMessage(body=body, queue=0) for body in "ab"])
    scene.pull()
    scene.append(scene.group.dead_log, _copy(2, attempt=1, died_at=rfc3339(scene.world.now_ms), reason="rejected"))


def faulty(world: World) -> dict[str, list[str]]:
    """Makes all faults happen in a world, and lets a message become overdue. Returns the expected findings by
    subject."""
    world.archived()
    for subject, (act, _) in FAULTS.items():
        # Each has an hour of its own, so that its bucket concerns no other fault.
        world.bench.turn(HOUR)
        act(Scene(world, subject))
    world.bench.turn(HOUR)
    Scene(world, "overdue").later(60)
    world.bench.clock.pass_time(HOUR)
    return {"overdue": ["stuck"]} | {subject: kinds for subject, (_, kinds) in FAULTS.items()}
