"""The bell, which wakes the thread that hands messages out, is heard once however often it rang, and not by a forked
child."""

from __future__ import annotations

import os
import select

import pytest

from hourwheel.celery.bell import Bell


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
