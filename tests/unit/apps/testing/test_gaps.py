"""An interrupt between a lock and its block, which Python 3.14 lets through, leaves a queue in memory usable."""

from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.testing import Queue
from tests.unit.gaps import interrupt_at_each_gap, patch_locks


def use(queue: Queue) -> None:
    queue.producer("orders").send("mine")
    queue.producer("orders").send("late", delay="1h")
    queue.advance(hours=2)
    queue.api.overview()


def test_a_queue_goes_on_after_an_interrupt_behind_any_lock_of_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps = patch_locks(monkeypatch)
    queues: list[Queue] = []

    def begin() -> tuple[Callable[[], Any], Callable[[], Any]]:
        queue = Queue()
        queues.append(queue)
        queue.consumer("orders", "billing").handler(lambda message: None)
        queue.producer("orders").send("first")
        return lambda: use(queue), lambda: queue.producer("orders").send("paid").result(0)

    assert interrupt_at_each_gap(gaps, begin) > 0
    for queue in queues:
        queue.advance(hours=3)  # no lock is left held, and no delayed message behind
        assert queue.scheduled("orders") == []
        before = len(queue.sent("orders"))
        use(queue)
        assert len(queue.sent("orders")) == before + 2
        queue.close()
