"""A dozing group is woken by each event that gives its consumers something to take, and by nothing else."""

from collections.abc import Callable

import pytest

from hourwheel.dozing.dozing import after_busy
from hourwheel.model.groups import TagFilter
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, PullResult, Settlement
from hourwheel.model.subjects import DozingGroup
from tests.unit.dozing.dozing import GROUP, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene.opened()


def test_a_stored_message_wakes_and_a_thousand_wake_once(scene: Scene) -> None:
    scene.doze()
    for number in range(1_000):
        scene.bench.send(str(number))
    assert scene.queues.received() == 1
    assert len(scene.pull(wakeup="woken", max_messages=1_000).pulls[0].messages) == 1_000


def test_a_message_after_a_wakeup_that_was_lost_wakes_again(scene: Scene) -> None:
    scene.doze()
    for _ in range(100):
        scene.bench.send("a")
        assert scene.queues.received() == 1
        scene.bench.clock.pass_time(5)


def test_a_group_without_consumers_is_woken_for_twelve_hours(scene: Scene) -> None:
    scene.doze()
    scene.bench.clock.pass_time(43_190)
    scene.bench.send("a")
    assert scene.queues.received() == 1
    scene.bench.clock.pass_time(11)
    scene.bench.send("b")
    assert scene.queues.received() == 0
    scene.settle(scene.pull())
    scene.doze()
    assert len(scene.deployment.subjects.get("orders").dozing) == 1


def test_a_woken_consumer_waits_again_after_one_more_pull_and_without_a_write(scene: Scene) -> None:
    scene.doze()
    for body in "abc":
        scene.bench.send(body)
        assert scene.queues.received() == 1
        taken = scene.pull(wakeup="woken")
        assert taken.next_pull_seconds == 0.75
        scene.bench.clock.pass_time(0.75)
        del scene.store.calls[:]
        settlements = [Settlement(receipt=pull.receipt) for pull in taken.pulls]
        assert scene.pull(idle_seconds=0.75, wait_seconds=20, settle=settlements).wakeup is not None
        assert [call for call in scene.store.calls if call[0] == "put"] == [("put", "pull")]
    assert scene.taken == ["a", "b", "c"]
    assert len(scene.queues.made) == 1


def test_messages_that_follow_a_wakeup_at_once_send_none_and_are_found_by_the_look_after_it(scene: Scene) -> None:
    scene.doze()
    scene.bench.send("a")
    scene.settle(scene.pull(wakeup="woken"))
    scene.bench.clock.pass_time(0.09)
    scene.bench.send("b")
    assert scene.queues.received() == 1
    scene.bench.clock.pass_time(0.75)
    scene.settle(scene.pull(idle_seconds=0.75))
    assert scene.taken == ["a", "b"]


def test_a_wakeup_for_nothing_is_followed_by_another_look(scene: Scene) -> None:
    scene.doze()
    assert scene.pull(wakeup="woken") == PullResult([], next_pull_seconds=0.75)


def test_a_busy_group_is_woken_now_and_then_and_leaves_the_list(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourwheel.dozing.rests._BUSY_SHARE", 1.0)
    scene.doze()
    for _ in range(100):
        scene.bench.send("a")
        scene.settle(scene.pull(idle_seconds=0.1))
        scene.bench.clock.pass_time(1)
    assert scene.queues.received() == 10
    for _ in range(320):
        scene.bench.send("a")
        scene.settle(scene.pull(idle_seconds=0.1))
        scene.bench.clock.pass_time(1)
    assert scene.deployment.subjects.get("orders").dozing == ()


def test_a_late_note_that_a_group_is_busy_does_not_concern_its_new_mark() -> None:
    old, new = DozingGroup("q", 1_000), DozingGroup("q", 5_000)
    assert after_busy((old,), old, 9_000) == (DozingGroup("q", 1_000, 9_000),)
    assert after_busy((new,), old, 9_000) == (new,)
    busy = DozingGroup("q", 1_000, 2_000)
    assert after_busy((busy,), busy, 900_000) == ()
    assert after_busy((new,), busy, 900_000) == (new,)


def test_a_late_producer_that_found_no_queue_does_not_remove_the_new_mark(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.doze()
    producer = scene.bench.another_process()
    producer.produce("orders", [NewMessage(body="a")])
    scene.queues.wakeups.clear()  # deleted by hand
    wake = scene.queues.wake

    def late(name: str) -> bool:
        found = wake(name)
        scene.bench.clock.pass_time(1)
        scene.pull(wakeup="missing")
        return found

    monkeypatch.setattr(scene.queues, "wake", late)
    producer.produce("orders", [NewMessage(body="b")])
    assert len(scene.deployment.subjects.get("orders").dozing) == 1


def retried(scene: Scene) -> None:
    held = scene.deployment.pull("orders", GROUP, PullRequest(consumer="c2"))
    scene.doze()
    scene.settle(held, retry=[0])


def released(scene: Scene) -> None:
    held = scene.deployment.pull("orders", GROUP, PullRequest(consumer="c2"))
    scene.doze()
    scene.settle(held, release=[0])


def expired(scene: Scene) -> None:
    scene.deployment.pull("orders", GROUP, PullRequest(consumer="c2", lease_seconds=30))
    scene.doze()
    scene.bench.clock.pass_time(60)
    scene.bench.another_process().sweeper.sweep()


def redriven(scene: Scene) -> None:
    scene.settle(scene.pull(), dead=[0])
    scene.doze()
    assert scene.deployment.dead_letters("orders", GROUP).redrive(lambda position, index: True) == 1


def sought(scene: Scene) -> None:
    scene.settle(scene.pull())
    scene.doze()
    scene.deployment.seeks().seek("orders", GROUP, to="start")


def resumed(scene: Scene) -> None:
    scene.deployment.groups.pause("orders", GROUP, paused=True)
    scene.doze()
    scene.deployment.groups.pause("orders", GROUP, paused=False)


def resumed_with_its_subject(scene: Scene) -> None:
    scene.deployment.subjects.pause("orders", paused=True)
    scene.doze()
    scene.deployment.subjects.pause("orders", paused=False)


def unfiltered(scene: Scene) -> None:
    scene.deployment.groups.put("orders", GROUP, filter=TagFilter(tags_any=("x",)))
    scene.bench.clock.pass_time(3)
    scene.doze()
    scene.deployment.groups.put("orders", GROUP, filter=None)
    scene.deployment.seeks().seek("orders", GROUP, to="start")


def moved(scene: Scene) -> None:
    scene.settle(scene.pull())
    scene.doze()
    scene.deployment.subjects.put("orders", queues=3)
    scene.bench.send("a")


@pytest.mark.parametrize(
    "event",
    [retried, released, expired, redriven, sought, resumed, resumed_with_its_subject, unfiltered, moved],
    ids=lambda event: event.__name__,
)
def test_it_wakes_the_group_when_a_message_is(scene: Scene, event: Callable[[Scene], None]) -> None:
    scene.bench.send("a")
    event(scene)
    assert scene.queues.received() >= 1
    scene.bench.clock.pass_time(3)
    assert scene.pull(wakeup="woken").pulls


def test_a_delayed_message_wakes_the_group_when_it_is_due(scene: Scene) -> None:
    scene.doze()
    scene.bench.send_later("a", delay=60)
    scene.queues.received()
    scene.bench.turn(90)
    assert scene.queues.received() == 1
    assert scene.pull(wakeup="woken").pulls


def test_a_retry_wakes_its_own_group_and_no_other(scene: Scene) -> None:
    scene.bench.send("a")
    held = scene.deployment.pull("orders", GROUP, PullRequest(consumer="c2"))
    scene.deployment.groups.put("orders", "mail", start="latest")
    scene.doze()
    scene.doze("mail")
    scene.settle(held, retry=[0])
    assert sorted(scene.queues.wakeups.values()) == [0, 1]


def test_a_consumer_that_cannot_take_everything_wakes_the_next_one(scene: Scene) -> None:
    scene.doze()
    scene.bench.send("a", "b")
    assert scene.queues.received() == 1
    scene.pull(wakeup="woken", max_messages=1)
    assert scene.queues.received() == 1
    scene.pull(wakeup="woken", max_messages=5)
    assert scene.queues.received() == 0


def test_a_consumer_that_leaves_messages_wakes_another_one_each_second(scene: Scene) -> None:
    scene.doze()
    scene.bench.send("a", "b", "c", "d", "e")
    assert scene.queues.received() == 1
    scene.pull(idle_seconds=5, max_messages=1)  # nobody woke it
    assert scene.queues.received() == 1
    scene.pull(wakeup="woken", max_messages=1)
    assert scene.queues.received() == 0
    scene.bench.clock.pass_time(1)
    scene.pull(idle_seconds=0, max_messages=1)
    assert scene.queues.received() == 1
    scene.deployment.groups.put("orders", "awake")
    scene.pull("awake", idle_seconds=0, max_messages=1)
    assert scene.queues.received() == 0
