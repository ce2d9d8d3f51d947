"""What the machine's randomness registers in a process does not grow with the clients that use it."""

import gc
import os
import weakref
from collections.abc import Callable

import pytest

from hourwheel.client import Api
from hourwheel.system import SystemIds


def living() -> int:
    gc.collect()
    return sum(type(each) is SystemIds for each in gc.get_objects())


def test_closed_clients_stay_registered_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[Callable[[], object]] = []
    monkeypatch.setattr(os, "register_at_fork", lambda *, after_in_child: registered.append(after_in_child))
    before = living()
    for _ in range(100):
        Api("http://127.0.0.1:1").close()
    assert registered == []
    assert living() <= before


def test_ids_that_nobody_uses_are_dropped() -> None:
    ids = SystemIds()
    dropped = weakref.ref(ids)
    del ids
    gc.collect()
    assert dropped() is None
