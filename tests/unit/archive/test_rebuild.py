from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.archiver import Archiver, CommitLimits
from hourwheel.archive.rebuild import GAP as REBUILD_GAP
from hourwheel.archive.rebuild import rebuild
from hourwheel.archive.rebuild_records import Rebuilt
from hourwheel.buckets.buckets import LEAD_MS, Bucket
from hourwheel.context import Settings
from hourwheel.delay.ownership import DispatchLog
from hourwheel.errors import NotFound, Unavailable
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Rejection
from hourwheel.ports.storage import Blobs, Key, Record, Table
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.archive.archiving import dying_at
from tests.unit.archive.reading import contents

HOUR = 3_600
GAP = 1_000


def archived(bench: Bench, archive: Blobs, **limits: int) -> None:
    deployment = bench.another_process()
    report = Archiver(deployment.context, deployment.registry, archive, CommitLimits(**limits)).run(
        bench.clock.now_ms() + 600_000
    )
    assert report.complete


def empty(bench: Bench) -> Bench:
    """Returns a bench like this one with an empty store."""
    return replace(bench, store=MemoryStore(), blobs=MemoryBlobs(), timers=type(bench.timers)())


def rebuilt(bench: Bench, archive: Blobs, *, workers: int = 1) -> tuple[Bench, Rebuilt]:
    """Rebuilds a store from the archive, and returns its bench and the report."""
    anew = empty(bench)
    report = rebuild(anew.deployment.context, archive, gap=GAP, workers=workers)
    return anew, report


def sweep(bench: Bench) -> None:
    """Fills a store with the events of its first minute."""
    bench.deployment.sweeper.sweep()
    bench.turn(60)


def test_messages_come_back_where_they_were(bench: Bench, archive: MemoryBlobs) -> None:
    bench.deployment.subjects.put("orders", queues=2)
    sent = [bench.send(f"body {at}", key=str(at))[0] for at in range(20)]
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    assert {(one.queue, one.offset, one.body) for one in anew.take()} == {
        (position.queue, position.offset, f"body {at}") for at, position in enumerate(sent)
    }
    assert (report.rows, report.messages, report.subjects, report.lost) == (20, 20, 1, 0)


def test_many_subjects_come_back_in_as_many_shards_as_they_need(
    bench: Bench, archive: MemoryBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.registry.subject_list._MOST_NAMES", 5)
    for number in range(20):
        bench.deployment.subjects.put(f"s{number:02d}")
    archived(bench, archive)
    anew = replace(empty(bench), store=CallByCall(MemoryStore()))
    rebuild(anew.deployment.context, archive, gap=GAP)
    assert all(anew.store.scan(Table.META, f"subjects/{shard}", limit=99) for shard in range(4))
    assert [name for name, _ in anew.another_process().registry.listed.entries()] == [f"s{n:02d}" for n in range(20)]


def test_settings_and_times_are_those_of_before(bench: Bench, archive: MemoryBlobs) -> None:
    bench.deployment.subjects.put("orders", queues=3, retention_seconds=HOUR)
    bench.deployment.groups.put("orders", "billing", max_attempts=3, retry=RetryPolicy(first_seconds=7))
    bench.send("a")
    archived(bench, archive)
    bench.clock.pass_time(HOUR / 2)
    anew, _ = rebuilt(bench, archive)
    assert anew.deployment.subjects.get("orders") == bench.deployment.subjects.get("orders")
    assert anew.deployment.groups.get("orders", "billing") == bench.deployment.groups.get("orders", "billing")
    bench.clock.pass_time(HOUR / 2)
    assert anew.bodies() == []


def test_offsets_go_on_beyond_all_that_were_given_out(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    archived(bench, archive)
    lost = bench.send("told to its producer, never archived")
    anew, report = rebuilt(bench, archive)
    (accepted,) = anew.send("anew")
    assert accepted.offset == 2 + GAP
    assert lost[0].offset is not None
    assert accepted.offset > lost[0].offset
    assert report.gap == GAP
    assert anew.bodies() == ["a", "b", "anew"]


def test_lag_does_not_count_the_sequences_that_were_skipped(bench: Bench, archive: MemoryBlobs) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a", "b")
    (pull,) = bench.pull(1, subject="orders", group="billing")
    bench.settle(pull, subject="orders", group="billing")
    archived(bench, archive)
    anew = empty(bench)
    rebuild(anew.deployment.context, archive)
    (queue,) = anew.deployment.groups.lag("orders", "billing").queues
    assert (queue.waiting, queue.offset, queue.end) == (1, 1, 2 + REBUILD_GAP)
    anew.send("c", "d")
    assert anew.deployment.groups.lag("orders", "billing").waiting == 3
    while pulls := anew.pull(subject="orders", group="billing"):
        for pull in pulls:
            anew.settle(pull, subject="orders", group="billing")
    anew.send("e")
    assert anew.deployment.groups.lag("orders", "billing").waiting == 1


def test_a_group_goes_on_where_its_archived_progress_ends(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b", "c")
    bench.settle(bench.pull(1)[0])
    archived(bench, archive)
    bench.settle(bench.pull(1)[0])
    anew, _ = rebuilt(bench, archive)
    assert anew.bodies() == ["b", "c"]
    assert anew.bodies(group="another") == ["a", "b", "c"]


def test_what_was_leased_is_delivered_again(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    bench.pull(1)
    bench.settle(bench.pull(1)[0])
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    assert anew.bodies() == ["a", "b"]


def test_retries_and_dead_letters_are_there_with_their_attempts(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("acked", "again", "dead")
    bench.settle(bench.pull()[0], retry=[1], dead=[Rejection(index=2, detail="too late")])
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    (message,) = anew.take()
    assert (message.body, message.attempt, message.offset) == ("again", 2, 1)
    (letter,) = anew.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert (letter.body, letter.reason, letter.detail, letter.offset) == ("dead", "rejected", "too late", 2)
    assert anew.deployment.dead_letters("orders", "billing").redrive(lambda *_: True) == 1
    assert anew.bodies() == ["dead"]


def test_delayed_messages_come_at_their_time_and_not_twice(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("soon", delay=60)
    bench.send_later("later", delay=600)
    bench.send_later("far", delay="90d")
    bench.turn(120)
    assert bench.bodies(group="before") == ["soon"]
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    sweep(anew)
    assert anew.bodies(group="first") == ["soon"]
    assert report.buckets == 2
    anew.turn(600)
    assert anew.bodies(group="second") == ["soon", "later"]
    anew.turn(91 * 86_400)
    assert anew.bodies(group="third") == ["far"]


def test_the_timer_of_a_bucket_is_ordered_anew(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("far", delay="90d")
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    ((when_ms, bucket),) = anew.timers.ordered
    assert when_ms == Bucket.parse(bucket).start_ms - LEAD_MS


def test_cancelled_messages_stay_cancelled(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("kept", delay=600)
    (cancelled,) = bench.send_later("cancelled", delay=600)
    bench.deployment.delayed.cancel(cancelled.scheduled_id or "")
    (moved,) = bench.send_later("moved", delay=600)
    bench.deployment.delayed.reschedule(moved.scheduled_id or "", delay=7_200)
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    sweep(anew)
    anew.turn(900)
    assert anew.bodies(group="first") == ["kept"]
    anew.turn(7_200)
    assert anew.bodies(group="second") == ["kept", "moved"]


def test_what_was_dispatched_and_not_archived_is_dispatched_again(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("once", delay=60)
    archived(bench, archive)
    bench.turn(120)
    anew, _ = rebuilt(bench, archive)
    sweep(anew)
    anew.turn(60)
    assert anew.bodies() == ["once"]


def test_buckets_in_which_nothing_is_left_do_not_come_back(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("a", "b", delay=60)
    ((_, bucket),) = bench.timers.ordered
    (cancelled,) = bench.send_later("cancelled", delay=60)
    bench.deployment.delayed.cancel(cancelled.scheduled_id or "")
    bench.turn(2 * HOUR)
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    assert report.buckets == 0
    assert anew.deployment.context.log(f"schedule/{bucket}").totals().sealed
    assert anew.store.scan(Table.META, "buckets", limit=10) == []
    sweep(anew)
    anew.turn(HOUR)
    assert anew.bodies() == ["a", "b"]


def archived_before(bench: Bench, archive: MemoryBlobs, *late: str) -> None:
    """Archives all but the rows of these logs, which came after the archiver had passed them."""
    deployment = bench.another_process()
    store = Hidden(bench.store, late)
    context = replace(deployment.context, store=store)
    Archiver(context, deployment.registry, archive).run(bench.clock.now_ms() + 600_000)
    assert not any(log in late for log, _, _ in contents(archive).messages)


class Hidden:
    """A store in which these counters are still at zero."""

    def __init__(self, inner: object, logs: tuple[str, ...]) -> None:
        self._inner, self._logs = inner, logs

    def __getattr__(self, verb: str) -> object:
        call = getattr(self._inner, verb)
        if verb != "counter":
            return call
        return lambda log: type(call(log))(0, 0) if log in self._logs else call(log)


def test_a_retry_that_arrived_beyond_the_archive_arrives_again(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b", "c")
    bench.settle(bench.pull()[0], retry=[0], dead=[1])
    archived_before(bench, archive, "orders~1/retry/billing~1", "orders~1/dead/billing~1")
    anew, report = rebuilt(bench, archive)
    (message,) = anew.take()
    assert (message.body, message.attempt) == ("a", 2)
    assert [
        one.body for one in anew.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    ] == ["b"]
    assert (report.replayed, report.lost) == (2, 0)


def test_hand_overs_that_follow_from_each_other_arrive_again_one_after_the_other(
    bench: Bench, archive: MemoryBlobs
) -> None:
    bench.send("a")
    bench.settle(bench.pull()[0], retry=[0])
    bench.settle(bench.pull()[0], retry=[0])
    bench.settle(bench.pull()[0], dead=[0])
    archived_before(bench, archive, "orders~1/retry/billing~1", "orders~1/dead/billing~1")
    anew, report = rebuilt(bench, archive)
    assert anew.bodies() == []
    (letter,) = anew.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
    assert (letter.body, letter.attempt) == ("a", 3)
    assert (report.replayed, report.lost) == (3, 0)


def test_a_retry_that_waited_beyond_the_archive_is_tried_when_its_bucket_ends(archive: MemoryBlobs) -> None:
    bench = Bench(settings=Settings(retry=RetryPolicy(first_seconds=60), archive=True))
    bench.send("a")
    bench.settle(bench.pull()[0], retry=[0])
    ((_, bucket),) = bench.timers.ordered
    archived_before(bench, archive, f"schedule/{bucket}")
    anew, report = rebuilt(bench, archive)
    assert (report.replayed, report.buckets) == (1, 1)
    sweep(anew)
    anew.turn(HOUR)
    (message,) = anew.take()
    assert (message.body, message.attempt) == ("a", 2)


def test_a_dispatch_that_arrived_beyond_the_archive_arrives_again_at_its_offset(
    bench: Bench, archive: MemoryBlobs
) -> None:
    bench.send_later("a", delay=60)
    bench.turn(120)
    archived_before(bench, archive, "orders~1/0")
    anew, report = rebuilt(bench, archive)
    assert (report.replayed, report.lost) == (1, 0)
    sweep(anew)
    anew.turn(HOUR)
    (message,) = anew.take()
    assert (message.body, message.offset) == ("a", 0)


def test_what_the_archive_only_names_is_counted_as_lost_and_holds_nobody_up(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("gone")
    bench.settle(bench.pull()[0], retry=[0])
    archived_before(bench, archive, "orders~1/0", "orders~1/retry/billing~1")
    anew, report = rebuilt(bench, archive)
    assert (report.replayed, report.lost) == (0, 1)
    anew.send("anew")
    assert anew.bodies() == ["anew"]
    assert anew.bodies(group="another") == ["anew"]
    assert anew.deployment.context.log("orders~1/0").get(1) is not None


def test_what_is_handed_over_in_two_steps_arrives_as_the_last_one_says(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("a", delay=60)
    ((_, name),) = bench.timers.ordered
    bench.turn(120)
    log = DispatchLog(bench.deployment.context, Bucket.parse(name))
    number, last = list(log.rows())[-1]
    (transfer,) = last.transfers
    again = msgspec.structs.replace(transfer, row_no=1, first_seq=1, token=b"another token...")
    row = msgspec.structs.replace(last, transfers=(again,))
    bench.store.put(
        Key(Table.DISPATCH, name, f"{number + 1:016d}"), Record(msgspec.msgpack.encode(row), b"t" * 16), expect=None
    )
    archived_before(bench, archive, "orders~1/0")
    anew, report = rebuilt(bench, archive)
    assert [message.offset for message in anew.take()] == [1]
    assert (report.replayed, report.lost) == (1, 0)


def test_a_row_that_a_lost_message_had_is_not_given_to_another(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("lost", delay=60)
    ((_, bucket),) = bench.timers.ordered
    bench.turn(120)
    archived_before(bench, archive, f"schedule/{bucket}")
    anew, _ = rebuilt(bench, archive)
    sweep(anew)
    anew.send_later("anew", delay=60)
    anew.turn(120)
    assert anew.bodies() == ["lost", "anew"]


def test_a_bucket_that_is_over_and_was_never_dispatched_is_dispatched_now(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("a", "b", delay=60)
    archived(bench, archive)
    bench.clock.pass_time(5 * HOUR)
    anew, report = rebuilt(bench, archive)
    assert report.buckets == 1
    sweep(anew)
    anew.turn(60)
    assert anew.bodies() == ["a", "b"]


def test_a_group_that_began_at_the_end_misses_nothing_that_comes(bench: Bench, archive: MemoryBlobs) -> None:
    for at in range(3):
        bench.send(f"never archived {at}")
    bench.deployment.groups.put("orders", "billing", start="latest")
    archived_before(bench, archive, "orders~1/0")
    anew, _ = rebuilt(bench, archive)
    anew.send("anew")
    assert anew.bodies() == ["anew"]


@pytest.mark.parametrize("after", [False, True])
def test_a_retry_outlives_the_message_that_it_is_of(after: bool) -> None:
    calls, left = 0, [0]
    while left[0] <= 0:
        calls += 1
        bench, archive = Bench(settings=Settings(retry=AT_ONCE, archive=True)), MemoryBlobs()
        bench.deployment.subjects.put("orders", retention_seconds=HOUR)
        bench.send("a")
        bench.clock.pass_time(HOUR - 20)
        bench.settle(bench.pull()[0], retry=[0])
        archived_before(bench, archive, "orders~1/retry/billing~1")
        bench.clock.pass_time(60)
        anew, left = empty(bench), [calls]
        dying = replace(anew, store=dying_at(anew.store, left, after))
        with suppress(Unavailable):
            rebuild(dying.deployment.context, archive, gap=GAP)
        report = rebuild(anew.deployment.context, archive, gap=GAP)
        assert (report.replayed, report.lost) == (1, 0)
        assert anew.bodies() == ["a"]
        assert anew.bodies(group="another") == []
    assert calls > 20


def test_the_archive_goes_on_behind_its_end(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b", "c")
    bench.send_later("later", delay=60)
    bench.settle(bench.pull(1)[0], retry=[0])
    bench.turn(30)
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    archived(anew, archive)
    assert set(contents(archive).rows.values()) == {1}
    sweep(anew)
    anew.turn(HOUR)
    for pull in anew.pull():
        anew.settle(pull)
    anew.send("d")
    archived(anew, archive)
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == ["a", "b", "c", "later", "d"]
    assert len([1 for _, _, row in found.rows if row]) > 3


def test_a_store_is_rebuilt_again_from_what_a_rebuilt_one_archived(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    bench.settle(bench.pull(1)[0])
    archived(bench, archive)
    once, _ = rebuilt(bench, archive)
    once.settle(once.pull(1)[0], retry=[0])
    once.send("c")
    archived(once, archive)
    twice, _ = rebuilt(once, archive)
    assert twice.bodies() == ["b", "c"]
    assert twice.send("d")[0].offset == 3 + 2 * GAP


def test_what_has_expired_stays_away(bench: Bench, archive: MemoryBlobs) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=HOUR)
    for at in range(5):
        bench.send(f"old {at}")
    bench.clock.pass_time(HOUR)
    bench.send("new")
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    assert (report.rows, report.messages) == (1, 1)
    assert anew.bodies() == ["new"]
    assert ("HolesFilled", 5) not in anew.meter.metrics
    assert anew.deployment.context.log("orders~1/0").trimmed() == 5


def test_a_deleted_subject_comes_back_as_its_generation_alone(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("of the first")
    bench.settle(bench.pull()[0])
    archived(bench, archive)
    bench.deployment.subjects.delete("orders")
    bench.send("x", subject="others")
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    assert report.subjects == 1
    for ask in (anew.deployment.subjects.get, anew.deployment.subjects.delete):
        with pytest.raises(NotFound):
            ask("orders")
    anew.send("of the second")
    assert anew.deployment.subjects.get("orders").generation == 2
    assert anew.bodies() == ["of the second"]


def test_orphans_are_there_again(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send_later("orphan", delay=60)
    bench.deployment.subjects.delete("orders")
    bench.turn(120)
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    assert [one.body for one in anew.deployment.delayed.orphans("orders", after=None, limit=10).messages] == ["orphan"]


def test_large_batches_come_back_as_segments(bench: Bench, archive: MemoryBlobs) -> None:
    bench.settings = msgspec.structs.replace(bench.settings, inline_bytes=1_024)
    bench.deployment = bench.another_process()
    bodies = [blake2b(bytes([at])).hexdigest() * 30 for at in range(50)]
    bench.deployment.produce("orders", [NewMessage(body=body) for body in bodies])
    archived(bench, archive)
    anew, _ = rebuilt(bench, archive)
    assert anew.blobs.list("batches/")
    assert anew.bodies() == bodies


def test_several_workers_do_the_same(bench: Bench, archive: MemoryBlobs) -> None:
    for at in range(250):
        bench.send(str(at))
    archived(bench, archive)
    anew, report = rebuilt(bench, archive, workers=4)
    assert report.rows == 250
    assert anew.bodies(1_000) == [str(at) for at in range(250)]
