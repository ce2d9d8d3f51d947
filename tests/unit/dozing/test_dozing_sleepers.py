"""Consumers that sleep beside their messages are woken by the sweeper; those of broadcast groups doze by themselves."""

import pytest

from hourwheel.model.groups import TagFilter
from hourwheel.model.pulls import PullRequest
from tests.unit.dozing.dozing import GROUP, Scene


@pytest.fixture
def scene() -> Scene:
    return Scene.opened()


def test_each_consumer_of_a_broadcast_group_has_a_queue_of_its_own(scene: Scene) -> None:
    scene.deployment.groups.put("orders", "caches", broadcast=True)
    for consumer in ("c1", "c2"):
        scene.doze("caches", consumer=consumer)
    assert len(scene.deployment.subjects.get("orders").dozing) == 2
    scene.bench.send("a")
    assert list(scene.queues.wakeups.values()) == [1, 1]
    for consumer in ("c1", "c2"):
        assert scene.pull("caches", consumer=consumer, wakeup="woken").pulls
    scene.deployment.groups.delete("orders", "caches")
    assert (scene.queues.wakeups, scene.deployment.subjects.get("orders").dozing) == ({}, ())


def test_a_consumer_of_a_broadcast_group_that_stays_away_loses_its_queue(scene: Scene) -> None:
    scene.deployment.groups.put("orders", "caches", broadcast=True, consumer_expires_seconds=3_600)
    scene.doze("caches")
    scene.bench.clock.pass_time(8_000)
    scene.bench.another_process().sweeper.sweep()
    assert (scene.queues.wakeups, scene.deployment.subjects.get("orders").dozing) == ({}, ())


def test_a_broadcast_group_that_was_resumed_is_looked_at_by_its_own_settings(scene: Scene) -> None:
    scene.deployment.groups.put("orders", "caches", broadcast=True)
    scene.pull("caches")
    scene.bench.send("a")
    scene.settle_of("caches", scene.pull("caches"))
    scene.deployment.groups.put("orders", "caches", filter=TagFilter(tags_any=("x",)))
    scene.bench.clock.pass_time(3)
    scene.bench.send("b")
    assert scene.doze("caches").wakeup is not None


def test_the_sweeper_wakes_a_group_whose_wakeup_was_lost(scene: Scene) -> None:
    scene.doze()
    sweeper = scene.bench.another_process()
    sweeper.sweeper.sweep()
    scene.bench.send("a")
    assert scene.queues.received() == 1  # and is lost
    scene.bench.clock.pass_time(3)
    sweeper.sweeper.sweep()
    assert scene.queues.received() == 0, "its consumer may be on the way"
    scene.bench.clock.pass_time(60)
    sweeper.sweeper.sweep()
    assert scene.queues.received() == 1


@pytest.mark.parametrize("why", ["paused", "filtered", "taken"])
def test_the_sweeper_lets_a_group_doze_that_nothing_waits_for(scene: Scene, why: str) -> None:
    if why == "filtered":
        scene.deployment.groups.put("orders", GROUP, filter=TagFilter(tags_any=("x",)))
    if why == "paused":
        scene.deployment.groups.pause("orders", GROUP, paused=True)
    scene.doze()
    scene.bench.send("a")
    scene.queues.received()
    if why == "taken":
        scene.settle(scene.pull())
    scene.bench.clock.pass_time(60)
    scene.bench.another_process().sweeper.sweep()
    assert scene.queues.received() == 0


def test_the_sweeper_wakes_dozing_groups_of_subjects_that_rest() -> None:
    scene = Scene.opened(sweep_rest_seconds=1_920)
    scene.doze()
    sweeper = scene.bench.another_process()
    for _ in range(6):
        sweeper.sweeper.sweep()
        scene.bench.clock.pass_time(60)
    assert sweeper.sweeper.sweep().resting == 1
    scene.bench.send("a")
    scene.queues.received()
    scene.deployment.pull("orders", GROUP, PullRequest(consumer="crashes", lease_seconds=30))
    for _ in range(2):
        scene.bench.clock.pass_time(60)
        sweeper.sweeper.sweep()
    assert scene.queues.received() >= 1
    assert scene.pull(wakeup="woken").pulls
