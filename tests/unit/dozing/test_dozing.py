"""A group whose consumers find nothing dozes: they wait at a queue, and each stored message wakes them."""

from collections.abc import Sequence
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.dozing.dozing import MOST_DOZING
from hourwheel.errors import Broken, NotFound, Throttled
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, PullResult, RetryLater, Settlement
from hourwheel.ports.storage import Counter, Key, Record, Table
from tests.support import Bench, CallByCall
from tests.unit.dozing.dozing import GROUP, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene.opened()


def test_a_consumer_that_finds_nothing_is_told_where_to_wait(scene: Scene) -> None:
    first = scene.pull()
    assert (first.wakeup, first.next_pull_seconds) == (None, 1.0)
    assert len(scene.deployment.subjects.get("orders").dozing) == 1
    waited = scene.doze()
    assert waited.wakeup is not None
    assert waited.wakeup.url.endswith(scene.queues.made[0])
    assert waited.wakeup.wait_seconds == 360


def test_no_group_dozes_before_every_copy_of_the_subject_has_expired(scene: Scene) -> None:
    other = scene.bench.another_process()
    other.produce("orders", [NewMessage(body="a")])
    scene.settle(scene.pull())
    began = scene.bench.clock.ms
    scene.doze()
    assert scene.bench.clock.ms - began > 2_000


def test_a_message_that_was_stored_by_an_old_copy_is_found_before_the_group_dozes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = scene.bench.another_process()
    producer.produce("orders", [NewMessage(body="a")])
    scene.settle(scene.pull())
    scene.pull()
    producer.produce("orders", [NewMessage(body="b")])  # its copy says that the group is awake
    assert scene.queues.received() == 0
    scene.bench.clock.pass_time(3)
    store = scene.store._store

    def outdated(names: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        totals = {name: store.counter(name) for name in names}
        return totals if consistent else {name: total._replace(rows=1) for name, total in totals.items()}

    monkeypatch.setattr(store, "counters", outdated)
    assert scene.pull().wakeup is None
    assert scene.taken == ["a", "b"]


@pytest.fixture
def missing_rows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets reads of rows find none, unless they are strongly consistent."""
    scan = scene.store._store.scan

    def outdated(table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        return [] if table == Table.CONSUME and not how.get("consistent", True) else scan(table, partition, **how)

    monkeypatch.setattr(scene.store._store, "scan", outdated)


@pytest.mark.usefixtures("missing_rows")
def test_a_message_whose_row_was_not_read_keeps_its_consumer_from_the_queue(scene: Scene) -> None:
    scene.doze()
    scene.bench.send("a")
    assert scene.pull() == PullResult([], next_pull_seconds=1.0)


def test_a_retry_of_a_lease_that_the_pull_ends_keeps_its_consumer_from_the_queue(
    scene: Scene, request: pytest.FixtureRequest
) -> None:
    scene.doze()
    scene.bench.send("a")
    assert scene.pull(consumer="c2", lease_seconds=30).pulls
    scene.bench.clock.pass_time(100)
    request.getfixturevalue("missing_rows")
    assert scene.pull() == PullResult([], next_pull_seconds=1.0)


def test_a_seek_by_another_process_is_seen_before_the_consumer_waits_again(scene: Scene) -> None:
    scene.bench.send("a")
    scene.settle(scene.pull())
    scene.doze()
    scene.pull(wakeup="woken")  # this process has read the group now
    scene.bench.another_process().seeks().seek("orders", GROUP, to="start")
    scene.bench.clock.pass_time(0.75)
    assert scene.pull(idle_seconds=0.75).pulls


def test_a_message_in_a_queue_that_is_new_to_the_process_is_found_before_its_consumer_waits(scene: Scene) -> None:
    scene.doze()
    other = scene.bench.another_process()
    scene.pull(wakeup="woken")
    other.subjects.put("orders", queues=8)
    for number in range(20):
        other.produce("orders", [NewMessage(body=str(number), key=str(number))])
    scene.bench.clock.pass_time(0.75)
    while scene.pull(max_messages=100, idle_seconds=0.75).pulls:
        pass
    assert len(scene.taken) == 20


@pytest.mark.parametrize("action", ["retry", "release"])
def test_a_retry_that_goes_with_the_pull_is_taken_by_it(scene: Scene, action: str) -> None:
    scene.doze()
    scene.bench.send("a")
    taken = scene.pull(wakeup="woken")
    scene.bench.clock.pass_time(0.75)
    again = scene.pull(idle_seconds=0.75, settle=[Settlement(receipt=taken.pulls[0].receipt, **{action: [0]})])
    assert again.pulls
    assert scene.taken == ["a", "a"]


def test_the_look_before_the_wait_reads_the_counters_of_all_logs_in_one_request(scene: Scene) -> None:
    scene.bench.deployment.subjects.put("orders", queues=64)
    for number in range(200):
        scene.bench.send(str(number), key=str(number))
    while (taken := scene.pull(max_messages=1_000)).pulls:
        scene.settle(taken)
    scene.doze()
    scene.bench.clock.pass_time(10)
    del scene.store.calls[:]
    assert scene.pull().wakeup is not None
    # The look of the pull itself: the records of the subject and the group, and the counters.
    assert [name for name, _ in scene.store.calls] == ["scan", "counters"]


def test_consumers_that_wait_renew_the_mark_of_their_group(scene: Scene) -> None:
    for _ in range(3):
        waits = scene.doze()
        assert waits.wakeup is not None
        scene.bench.clock.pass_time(20_000)
    scene.bench.send("a")
    assert scene.queues.received() == 1


def test_sending_costs_nothing_more_while_no_group_dozes_and_no_write_for_a_wakeup(scene: Scene) -> None:
    def costs() -> list[tuple[str, str]]:
        del scene.store.calls[:]
        scene.bench.send("a")
        return scene.store.calls[:]

    store = CallByCall(MemoryStore())
    plain = Bench(store)
    plain.send("a")
    del store.calls[:]
    plain.send("a")
    costs()
    assert costs() == store.calls
    scene.settle(scene.pull())
    scene.doze()
    assert [call for call in costs() if call[0] == "put"] == [("put", "consume")]
    assert scene.queues.received() == 1


def test_a_consumer_that_had_a_message_lately_waits_in_its_pull(scene: Scene) -> None:
    assert scene.pull(idle_seconds=0.5, wait_seconds=20) == PullResult([])
    assert scene.deployment.subjects.get("orders").dozing == ()


def test_a_consumer_that_cannot_wait_at_a_queue_pulls_less_and_less_often(scene: Scene) -> None:
    rests = [scene.pull(wakeup=None, idle_seconds=idle).next_pull_seconds for idle in (1, 4, 40, 1_000)]
    assert rests == [0, 1, 10, 20]


def test_a_client_of_the_version_before_is_told_nothing_new(scene: Scene) -> None:
    assert scene.deployment.pull("orders", GROUP, PullRequest(consumer="c1")) == PullResult([])


def test_where_pulls_wait_for_nothing_no_group_dozes() -> None:
    bench = Bench()
    request = PullRequest(consumer="c1", idle_seconds=100, wakeup="able")
    assert bench.deployment.pull("orders", GROUP, request) == PullResult([])


def parked(scene: Scene, delay: int) -> None:
    """Has an ordered group park its only message, which is due after this many seconds."""
    scene.deployment.groups.put("orders", "ordered", ordered=True)
    scene.deployment.produce("orders", [NewMessage(body="a", key="k")])
    taken = scene.pull("ordered")
    settlement = Settlement(receipt=taken.pulls[0].receipt, retry=[RetryLater(index=0, delay=delay)])
    scene.deployment.settle("orders", "ordered", [settlement])


def test_an_ordered_group_comes_back_when_its_next_message_is_due(scene: Scene) -> None:
    parked(scene, 100)
    waits = scene.doze("ordered").wakeup
    assert waits is not None
    assert 90 < waits.wait_seconds < 100


@pytest.mark.parametrize("setting", ["push", "limit"])
def test_such_a_group_does_not_doze(scene: Scene, setting: str) -> None:
    if setting == "push":
        scene.deployment.groups.put("orders", "g", push=PushTarget(kind="https", address="https://example.org"))
    else:
        scene.deployment.groups.put("orders", "g", max_in_flight=1)
        scene.bench.send("a", "b")
        assert scene.deployment.pull("orders", "g", PullRequest(consumer="c2", max_messages=1)).pulls
    for _ in range(5):
        assert scene.pull("g").wakeup is None
        scene.bench.clock.pass_time(1)
    assert scene.queues.made == []


def test_more_groups_of_a_subject_than_its_record_may_list_pull_now_and_then(scene: Scene) -> None:
    for number in range(MOST_DOZING):
        scene.pull(f"g{number}")
    assert scene.pull("one-more").next_pull_seconds == 2.5
    assert len(scene.deployment.subjects.get("orders").dozing) == MOST_DOZING


@pytest.mark.parametrize("error", [Throttled("SQS"), Broken("AccessDenied")])
def test_a_queue_that_cannot_be_used_loses_nothing_and_fails_no_request(scene: Scene, error: Exception) -> None:
    scene.doze()
    scene.queues.away = error
    scene.bench.send("a")
    assert ("WakesMissed", 1) in scene.bench.meter.metrics
    scene.queues.away = None
    scene.bench.send("b")  # not recorded as sent: the next message wakes
    assert scene.queues.received() == 1
    scene.settle(scene.pull(wakeup="woken"))
    scene.queues.away = error
    assert scene.pull().next_pull_seconds == 2.5
    assert scene.taken == ["a", "b"]


def test_a_throttled_store_fails_no_request_whose_message_is_stored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.doze()
    put = scene.store.put

    def throttled(key: Key, record: Record, *, expect: bytes | None) -> object:
        if key.table is Table.META:
            raise Throttled("meta")
        return put(key, record, expect=expect)

    monkeypatch.setattr(scene.store, "put", throttled)
    scene.bench.send("a")
    assert scene.queues.received() == 1
    scene.queues.wakeups.clear()  # the mark of a group whose queue is gone has to be removed
    scene.bench.clock.pass_time(1)
    scene.bench.send("b")
    assert ("WakesMissed", 1) in scene.bench.meter.metrics
    monkeypatch.undo()
    assert scene.pull(wakeup="woken").pulls


def test_a_queue_that_was_deleted_by_hand_is_made_again(scene: Scene) -> None:
    scene.doze()
    scene.queues.wakeups.clear()
    scene.bench.send("a")  # fails nothing
    scene.settle(scene.pull())
    scene.doze(wakeup="able")
    assert scene.queues.wakeups == {}
    assert scene.pull(wakeup="missing").wakeup is None
    scene.doze()
    scene.bench.send("b")
    assert scene.queues.received() == 1


def test_a_deleted_group_and_a_deleted_subject_take_their_queues_along(scene: Scene) -> None:
    scene.deployment.groups.put("orders", "mail")
    scene.doze()
    scene.doze("mail")
    scene.deployment.groups.delete("orders", GROUP)
    assert len(scene.queues.wakeups) == 1
    scene.bench.send("a")  # wakes a group that is gone, without a fault
    scene.deployment.subjects.delete("orders")
    assert scene.queues.wakeups == {}
    with pytest.raises(NotFound):
        scene.deployment.subjects.get("orders")


def test_a_group_that_is_created_again_has_another_queue(scene: Scene) -> None:
    scene.doze()
    scene.deployment.groups.delete("orders", GROUP)
    scene.doze()
    assert len(set(scene.queues.made)) == 2


def test_a_deleted_group_leaves_the_list_of_dozing_ones(scene: Scene) -> None:
    for number in range(MOST_DOZING):
        scene.pull(f"g{number}")
        scene.deployment.groups.delete("orders", f"g{number}")
    assert scene.deployment.subjects.get("orders").dozing == ()
    scene.doze()


def test_a_group_whose_queue_is_gone_leaves_the_list_of_dozing_ones(scene: Scene) -> None:
    scene.doze()
    scene.queues.wakeups.clear()
    scene.bench.send("a")
    assert scene.deployment.subjects.get("orders").dozing == ()


def test_a_parked_message_that_is_due_soon_is_not_waited_for_at_the_queue(scene: Scene) -> None:
    parked(scene, 10)
    due_ms = scene.bench.clock.ms + 10_000
    assert scene.doze("ordered").wakeup is not None
    scene.bench.clock.ms = due_ms - 1_300
    rest = scene.pull("ordered")
    assert (rest.wakeup, rest.next_pull_seconds) == (None, 1.3)
    scene.bench.clock.ms = due_ms - 10
    assert scene.pull("ordered", idle_seconds=60).next_pull_seconds == 0.05


def test_a_group_that_was_resumed_by_another_process_does_not_doze_on_its_old_record(scene: Scene) -> None:
    scene.bench.send("a")
    scene.deployment.groups.pause("orders", GROUP, paused=True)
    scene.doze()
    other = scene.bench.another_process()
    scene.queues.away = Throttled("SQS")
    other.groups.pause("orders", GROUP, paused=False)
    scene.queues.away = None
    rest = scene.pull()
    assert (rest.pulls, rest.wakeup) == ([], None)
    assert scene.pull().pulls
