"""Pushes in threads: a message that is stored while a pusher runs is pushed as well."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from hourwheel.embedded.workers import pushes as module
from hourwheel.embedded.workers.pushes import EmbeddedPushes
from hourwheel.push.pusher import PusherEnd
from tests.support import Bench

SECONDS = 10


def test_what_is_stored_while_a_pusher_ends_has_it_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = threading.Semaphore(0), threading.Event()

    class Ending:
        """A pusher that finds nothing, and takes its time to end."""

        def __init__(self, *of: Any, **how: Any) -> None:
            pass

        def run(self) -> PusherEnd:
            begun.release()
            gate.wait(SECONDS)
            return PusherEnd.IDLE

    monkeypatch.setattr(module, "Pusher", Ending)
    pushes = EmbeddedPushes()
    pushes.begin(Bench().deployment, "owner", SimpleNamespace(report=lambda *of: None))
    pushes.start("orders", "billing")
    assert begun.acquire(timeout=SECONDS)
    pushes.start("orders", "billing")
    gate.set()
    assert begun.acquire(timeout=SECONDS), "nobody pushes what came meanwhile"
    pushes.stop()
    assert pushes.running == 0
