"""A sweep stops at the end of its time, and the next one goes on where it stopped, in whichever process."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.ports.storage import Record, Table
from tests.support import AT_ONCE, Bench, CallByCall

SUBJECTS = [f"s{number:02d}" for number in range(30)]


class SlowGroups(CallByCall):
    """Takes five seconds to list the groups of a subject."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.bench: Bench | None = None
        self.tended: list[str] = []

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        if self.bench is not None and partition.startswith("groups/"):
            self.bench.clock.pass_time(5)
            self.tended.append(partition.removeprefix("groups/"))
        return super().scan(table, partition, **how)


@pytest.fixture
def store() -> SlowGroups:
    return SlowGroups()


@pytest.fixture
def bench(store: SlowGroups) -> Bench:
    """Returns thirty subjects, of which a sweep tends nine in its 45 seconds."""
    bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0))
    for subject in SUBJECTS:
        bench.deployment.subjects.put(subject)
    store.bench = bench
    return bench


@pytest.mark.parametrize("is_new_process", [False, True])
def test_each_subject_is_tended_once_in_a_round(bench: Bench, store: SlowGroups, is_new_process: bool) -> None:
    for _ in range(3):
        store.tended.clear()
        complete = []
        while not (complete and complete[-1]):
            if is_new_process:
                bench.deployment = bench.another_process()
            began_ms = bench.clock.now_ms()
            complete.append(bench.deployment.sweeper.sweep().is_complete)
            assert bench.clock.now_ms() - began_ms <= 50_000
        assert complete == [False, False, False, True]
        assert store.tended == SUBJECTS


def test_two_sweepers_at_once_leave_no_subject_out(bench: Bench, store: SlowGroups) -> None:
    others = [bench.another_process() for _ in range(2)]
    for number in range(12):
        others[number % 2].sweeper.sweep()
    assert set(store.tended) == set(SUBJECTS)


def test_a_subject_that_is_made_behind_the_position_is_tended_in_the_next_round(
    bench: Bench, store: SlowGroups
) -> None:
    bench.deployment.sweeper.sweep()
    bench.deployment.subjects.put("a-new")
    for _ in range(8):
        bench.deployment.sweeper.sweep()
    assert "a-new" in store.tended


def test_a_round_that_takes_several_sweeps_counts_from_its_beginning(bench: Bench) -> None:
    for _ in range(4):
        bench.deployment.sweeper.sweep()
        bench.clock.pass_time(10)
    told = [value for name, value in bench.meter.metrics if name == "SweepSeconds"]
    assert told == [45, 100, 155, 180]


def test_wheels_are_tended_whatever_the_subjects_take(bench: Bench) -> None:
    bench.send_later("x", delay=100, subject=SUBJECTS[0])
    bench.timers.ordered.clear()
    bench.clock.pass_time(120)
    began_ms = bench.clock.now_ms()
    assert bench.deployment.sweeper.delayed.tend().started_wheels == 1
    assert bench.clock.now_ms() == began_ms


def test_a_sweep_that_comes_to_the_end_leaves_no_record_and_reads_none(bench: Bench, store: SlowGroups) -> None:
    for _ in range(4):
        bench.deployment.sweeper.sweep()
    assert store.scan(Table.META, "sweep", limit=1) == []
    store.bench = None
    bench.deployment.sweeper.sweep()
    store.calls.clear()
    bench.deployment.sweeper.sweep_subjects()
    assert not store.writes
