"""A pusher that ends looks once more, also at queues that were added since its last pull."""

from collections.abc import Callable

import pytest

from hourwheel.context import Settings
from hourwheel.model.messages import NewMessage
from hourwheel.push.lease import PushLease
from hourwheel.push.pusher import Pusher
from tests.support import Bench
from tests.unit.push.pushing import TARGET, pusher


def while_leaving(patch: pytest.MonkeyPatch, moment: str, act: Callable[[], object]) -> None:
    """Runs ``act`` once, before or after a pusher gives its lease up."""
    real, left = PushLease.leave, [act]

    def leave(lease: PushLease, *arguments: object) -> bool:
        if moment == "before" and left:
            left.pop()()
        result = real(lease, *arguments)  # type: ignore[arg-type]  # passed on
        if moment == "after" and left:
            left.pop()()
        return result

    patch.setattr(PushLease, "leave", leave)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("seconds", [0, 60])
def test_a_message_in_a_queue_that_was_added_meanwhile_is_delivered(
    monkeypatch: pytest.MonkeyPatch, moment: str, seconds: int
) -> None:
    bench = Bench(settings=Settings(registry_seconds=seconds))
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    bench.send("first")
    running: Pusher = pusher(bench)

    def add() -> None:
        other = bench.another_process()
        other.subjects.put("orders", queues=4)
        other.produce("orders", [NewMessage(body="second", queue=3)])

    while_leaving(monkeypatch, moment, add)
    running.run()
    assert bench.targets.bodies == ["first", "second"]
