"""The bell, which wakes the thread that hands messages out, is heard once however often it rang, and not by a forked
child."""

from __future__ import annotations

import os
import select
from contextlib import suppress

import pytest

from hourwheel.apps.celery.bell import Bell
from hourwheel.apps.celery.transport import Transport


def test_it_is_heard_once_however_often_it_rang() -> None:
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    bell.ring()
    assert bell.wait(0)
    bell.hush()
    assert not bell.wait(0)
    bell.close()
    bell.ring()


def test_it_is_heard_where_select_has_no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "poll")
    bell = Bell()
    assert not bell.wait(0)
    bell.ring()
    assert bell.wait(None)
    bell.close()


def test_a_bell_that_a_thread_rang_during_a_fork_is_dropped_by_the_child() -> None:
    bell = Bell()
    descriptor = bell.fileno()
    bell._lock.acquire()  # as a thread of the parent leaves it, which does not exist in the child
    bell.__del__()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


class HeldTransport(Transport):
    """A transport whose one message comes before step number ``at`` of handing out. Does not sleep."""

    def __init__(self, at: int, bell: Bell) -> None:
        self.at, self.waiting, self.handed_out, self.slept = at, 0, 0, False
        self.bell = bell

    def step(self) -> None:
        self.at -= 1
        if self.at == 0:
            self.waiting += 1
            self.bell.ring()

    def _deliver_some(self, most: int) -> int:
        self.step()
        count, self.waiting = self.waiting, 0
        self.handed_out += count
        return count


class HeldBell(Bell):
    """A bell that is a step of its transport, too, and never waits. ``late``: it is hushed when the transport sleeps,
    after the second look: a planted bug."""

    def __init__(self, at: int, *, late: bool = False) -> None:
        super().__init__()
        self.late = late
        self.transport = HeldTransport(at, self)

    def hush(self) -> None:
        self.transport.step()
        if not self.late:
            super().hush()

    def wait(self, timeout_seconds: float | None) -> bool:
        self.transport.step()
        if self.late:
            super().hush()
        if not super().wait(0):
            self.transport.slept = True
            raise TimeoutError
        return True


def slept_beside_a_message(at: int, *, late: bool = False) -> bool:
    bell = HeldBell(at, late=late)
    with suppress(TimeoutError):
        bell.transport.drain_events(None, 60)
    bell.close()
    came = bell.transport.at <= 0
    return came and bell.transport.slept and not bell.transport.handed_out


STEPS = [1, 2, 3, 4]  # a look, the hush, a second look, the wait


@pytest.mark.parametrize("at", STEPS)
def test_a_transport_does_not_sleep_beside_a_message(at: int) -> None:
    assert not slept_beside_a_message(at)


def test_a_bell_that_is_hushed_after_the_second_look_is_found() -> None:
    assert any(slept_beside_a_message(at, late=True) for at in STEPS)


@pytest.mark.parametrize("at", [1, 2])
def test_a_message_that_comes_while_an_event_loop_is_served_is_handed_out_or_rings_again(at: int) -> None:
    bell = HeldBell(at)
    bell.transport._on_bell()
    assert bell.transport.handed_out or Bell.wait(bell, 0)
    bell.close()
