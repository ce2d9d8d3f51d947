"""Cut-off changes of delayed messages are finished in turns of limited time, and none holds up the sweep."""

import pytest

from hourwheel.buckets.scheduled_ids import unchecked_position
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.pending_changes import ListedChange, PendingChanges
from hourwheel.errors import Throttled
from tests.support import Bench

COUNT = 90


class SlowChanges:
    """Takes a second for each listed change."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tended: list[int] = []
        self.is_refused = False

        def finish(_: ScheduledMessages, listed: ListedChange, __: int) -> None:
            bench.clock.pass_time(1)
            self.tended.append(listed.position.index)
            if self.is_refused:
                raise Throttled("busy")

        monkeypatch.setattr(ScheduledMessages, "_finish_listed", finish)


@pytest.fixture
def slow(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> SlowChanges:
    accepted = bench.send_later(*map(str, range(COUNT)), delay=3_000)
    changes = PendingChanges(bench.deployment.context)
    for one in accepted:
        position = unchecked_position(one.scheduled_id or "")
        assert position is not None
        changes.add_to_list(position)
    return SlowChanges(bench, monkeypatch)


def test_the_sweep_is_started_before_changes_are_finished(bench: Bench, slow: SlowChanges) -> None:
    tended_at_start: list[int] = []
    bench.deployment.sweeper.delayed.tend(lambda: tended_at_start.append(len(slow.tended)))
    assert tended_at_start == [0]


@pytest.mark.parametrize("is_refused", [False, True])
def test_changes_take_turns_of_half_a_minute(bench: Bench, slow: SlowChanges, is_refused: bool) -> None:
    slow.is_refused = is_refused
    for _ in range(3):
        began_ms = bench.clock.now_ms()
        bench.deployment.sweeper.delayed.tend()
        assert bench.clock.now_ms() - began_ms <= 31_000
    assert sorted(slow.tended) == list(range(COUNT))
    bench.deployment.sweeper.delayed.tend()
    assert sorted(slow.tended[COUNT:]) == sorted(slow.tended[:30])


def test_the_sweep_is_started_beside_wheels_that_take_long(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks_wheel(*_: object) -> bool:
        bench.clock.pass_time(30)
        return False

    for hour in range(4):
        bench.send_later("x", delay=60 + 3_600 * hour)
    bench.clock.pass_time(3 * 3_600)
    monkeypatch.setattr("hourwheel.delay.maintenance.lacks_wheel", lacks_wheel)
    began_ms = bench.clock.now_ms()
    started: list[int] = []
    bench.deployment.sweeper.delayed.tend(lambda: started.append(bench.clock.now_ms() - began_ms))
    assert started == [30_000]
    assert bench.clock.now_ms() - began_ms >= 90_000
