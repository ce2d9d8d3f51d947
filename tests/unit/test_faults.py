"""Faults that last are reported once, and what a process remembers of them is bounded."""

import logging

import pytest

from hourwheel import faults
from hourwheel.errors import Broken, GroupRemoved
from hourwheel.faults import Faults
from tests.support import Bench


def fail(kept: Faults, bench: Bench, what: str, error: Exception) -> None:
    with kept.contained(bench.cell.context, what):
        raise error


def test_a_lasting_fault_is_reported_once_and_again_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "hourwheel")
    bench, kept = Bench(), Faults()
    for reason in ("a", "a", "b", "b", "a"):
        fail(kept, bench, "the lag", Broken(reason))
    with kept.contained(bench.cell.context, "the lag"):
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
