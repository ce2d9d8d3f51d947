"""Faults that last are reported once, and what a process remembers of them is bounded."""

import logging
import threading

import pytest

from hourwheel import faults
from hourwheel.errors import Broken, CellUnavailable, GroupRemoved, Unavailable
from hourwheel.faults import Faults
from tests.support import Bench


def fail(kept: Faults, bench: Bench, what: str, error: Exception) -> None:
    with kept.contained(bench.deployment.context, what):
        raise error


def test_a_lasting_fault_is_reported_once_and_again_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "hourwheel")
    bench, kept = Bench(), Faults()
    for reason in ("a", "a", "b", "b", "a"):
        fail(kept, bench, "the lag", Broken(reason))
    with kept.contained(bench.deployment.context, "the lag"):
        pass
    fail(kept, bench, "the lag", Broken("a"))
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"the lag failed: Broken: {reason}" for reason in "abaa"]


def test_faults_of_names_that_never_come_again_take_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(faults, "_MOST", 10)
    bench, kept = Bench(), Faults()
    for number in range(100):
        fail(kept, bench, f"group {number}", Broken("a"))
        fail(kept, bench, "the oldest", Broken("a"))  # lasts, so it stays among the last ones
    assert len(kept._reported) == 10
    assert sum("the oldest" in record.getMessage() for record in caplog.records) == 1
    fail(kept, bench, "group 99", GroupRemoved("group-unknown", "gone"))
    assert len(kept._reported) == 9


class Guarded(dict[str, str]):
    """Notes each change that a thread makes without the lock, beside which another thread may make one."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__()
        self._lock = lock
        self.unguarded: list[str] = []

    def _note(self, key: str) -> None:
        if not self._lock.locked():
            self.unguarded.append(key)

    def __setitem__(self, key: str, text: str) -> None:
        self._note(key)
        super().__setitem__(key, text)

    def __delitem__(self, key: str) -> None:
        self._note(key)
        super().__delitem__(key)

    def pop(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]  # one form is used
        self._note(key)
        return super().pop(key, default)


def test_threads_change_what_is_remembered_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one removes the first fault beneath another one that removes it too, and containment itself fails."""
    monkeypatch.setattr(faults, "_MOST", 1)
    bench, kept = Bench(), Faults()
    guarded = kept._reported = Guarded(kept._lock)
    fail(kept, bench, "the lag", Broken("a"))
    fail(kept, bench, "the trace", Broken("a"))
    assert list(guarded) == ["the trace"]
    with kept.contained(bench.deployment.context, "the trace"):
        pass
    fail(kept, bench, "the lag", Broken("a"))
    fail(kept, bench, "the lag", GroupRemoved("group-unknown", "gone"))
    assert (dict(guarded), guarded.unguarded) == ({}, [])


def test_work_abroad_goes_on_after_any_error_and_work_at_home_does_not(caplog: pytest.LogCaptureFixture) -> None:
    bench, kept = Bench(), Faults()
    for error in (CellUnavailable("away"), Unavailable("away"), Broken("broken")):
        with kept.abroad(bench.deployment.context, "far:orders~1/0.1", "reading"):
            raise error
        with pytest.raises(type(error)), kept.abroad(bench.deployment.context, "orders~1/0", "reading"):
            raise error
    told = [record.getMessage() for record in caplog.records]
    assert told == ["reading cell far failed: CellUnavailable: away", "reading cell far failed: Broken: broken"]


def test_only_an_outage_of_a_cell_is_swallowed_as_one(caplog: pytest.LogCaptureFixture) -> None:
    bench, kept = Bench(), Faults()
    with kept.outages(bench.deployment.context, "archiving"):
        raise CellUnavailable("away")
    assert [record.getMessage() for record in caplog.records] == ["archiving failed: CellUnavailable: away"]
    for error in (Unavailable("away"), Broken("broken")):
        with pytest.raises(type(error)), kept.outages(bench.deployment.context, "archiving"):
            raise error
