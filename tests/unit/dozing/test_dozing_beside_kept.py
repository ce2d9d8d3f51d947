"""A consumer that finds nothing rests for short times beside messages that another consumer keeps."""

import pytest

from hourwheel.deployment.deployment import Deployment
from hourwheel.model.pulls import PullResult, Settlement
from hourwheel.pull_log.records import AHEAD_KEPT_MS
from tests.unit.dozing.dozing import Scene

_KEPT = ["m4", "m5", "m6", "m7"]


@pytest.fixture
def scene() -> Scene:
    return Scene.opened()


def pull_on(
    scene: Scene, last: PullResult | None, consumer: str, deployment: Deployment | None = None, most: int = 1
) -> PullResult:
    """Pulls as a busy consumer does: acknowledges its last pull by the next one."""
    settle = [Settlement(receipt=pull.receipt) for pull in last.pulls] if last is not None else None
    how = {"consumer": consumer, "max_messages": most, "idle_seconds": 0.05, "settle": settle}
    return scene.pull(deployment=deployment, **how)


def keep(scene: Scene, deployment: Deployment) -> PullResult:
    """Has ``c1`` keep messages, and another consumer take all others. Returns the last pull of ``c1``, which never
    pulls again."""
    for number in range(12):
        scene.bench.send(f"m{number}")
    mine = pull_on(scene, None, "c1")
    mine = pull_on(scene, mine, "c1")
    other = pull_on(scene, None, "c2", deployment)
    scene.bench.clock.pass_time(0.05)
    mine = pull_on(scene, mine, "c1")
    while other.pulls:
        other = pull_on(scene, other, "c2", deployment, most=2)
    return mine


@pytest.mark.parametrize("wakeup", ["able", None])
@pytest.mark.parametrize("processes", [1, 2])
def test_it_is_handed_messages_of_a_consumer_that_stopped_within_seconds(
    scene: Scene, processes: int, wakeup: str | None
) -> None:
    scene.doze(consumer="c2")  # the group is marked
    deployment = scene.deployment if processes == 1 else scene.bench.another_process()
    keep(scene, deployment)
    stopped_ms = scene.bench.clock.ms
    del scene.taken[:]
    idle_ms = scene.bench.clock.ms - 100_000
    while not scene.taken:
        idle = (scene.bench.clock.ms - idle_ms) / 1_000
        result = scene.pull(
            consumer="c2", deployment=deployment, max_messages=100, idle_seconds=idle, wakeup=wakeup, wait_seconds=0
        )
        assert result.wakeup is None
        scene.bench.clock.pass_time(result.next_pull_seconds)
    assert sorted(scene.taken) == _KEPT
    assert scene.bench.clock.ms - stopped_ms <= AHEAD_KEPT_MS + 2_000


def test_it_dozes_once_nothing_is_kept(scene: Scene) -> None:
    scene.doze(consumer="c2")
    mine = keep(scene, scene.bench.another_process())
    while mine.pulls:
        mine = pull_on(scene, mine, "c1")
    began_ms = scene.bench.clock.ms
    assert scene.doze(consumer="c2").wakeup is not None
    assert scene.bench.clock.ms - began_ms <= AHEAD_KEPT_MS + 1_000
