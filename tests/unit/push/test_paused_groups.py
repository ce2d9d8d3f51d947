"""An operator pauses a group that is pushed, or its subject: nothing is delivered until the resume."""

import msgspec
import pytest

from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import Outcome, PushDelivery
from hourwheel.push.decisions import PusherEnd
from tests.unit.push.pushing import bench_with, lag, push, woken


@pytest.mark.parametrize("whole", [False, True], ids=["group", "subject"])
def test_a_paused_group_is_not_pushed_and_goes_on_when_resumed(whole: bool) -> None:
    def pause(paused: bool) -> None:
        if whole:
            bench.deployment.subjects.pause("orders", paused=paused)
        else:
            bench.deployment.groups.pause("orders", "billing", paused=paused)

    bench = bench_with()
    bench.send("a")
    push(bench)
    pause(True)
    bench.send("b")
    assert woken(bench) == 0, "a stored row starts no pusher meanwhile"
    assert push(bench) is PusherEnd.NO_TARGET, "and one that starts nevertheless leaves"
    bench.deployment.sweeper.sweep()
    assert bench.pushes.started == []
    pause(False)
    assert bench.pushes.started == [("orders", "billing")]
    push(bench)
    assert bench.targets.bodies == ["a", "b"]


def test_a_delivery_that_has_not_begun_when_the_group_is_paused_is_given_back() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=2, concurrency=1))
    bench.send("a", "b", "c", "d")

    def answer(delivery: PushDelivery) -> Outcome:
        bench.deployment.groups.pause("orders", "billing", paused=True)
        return Outcome(too_large=len(delivery.messages) == 2)

    bench.targets.answer = answer
    bench.settings = msgspec.structs.replace(bench.settings, registry_seconds=0)
    push(bench)
    assert [len(delivery.messages) for delivery in bench.targets.deliveries] == [2]
    assert (lag(bench).waiting, lag(bench).retrying, lag(bench).in_flight) == (2, 2, 0)
