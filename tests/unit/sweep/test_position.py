"""A sweep stops at the end of its time, and the next one goes on where it stopped, in whichever process."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Broken, Throttled
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.sweep.subjects import SubjectSweep
from tests.support import AT_ONCE, Bench, CallByCall

SUBJECTS = [f"s{number:02d}" for number in range(30)]
POSITION = Key(Table.META, "sweep", "position")
QUARTER_SECONDS = 900


class SlowGroups(CallByCall):
    """Takes five seconds to read the records of a subject and its groups."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.bench: Bench | None = None
        self.tended: list[str] = []
        self.seconds = 5
        self.is_position_throttled = False
        self.is_list_broken = False
        """The pages of subjects behind the first one cannot be read."""

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        if key == POSITION and self.is_position_throttled:
            raise Throttled("busy")
        return super().get(key, consistent=consistent)

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        if self.is_list_broken and partition == "subjects/0" and how.get("start"):
            raise Broken("the database failed: malformed")
        if self.bench is not None and partition.startswith("subject/"):
            self.bench.clock.pass_time(self.seconds)
            self.tended.append(partition.removeprefix("subject/"))
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


def spoil_position(store: SlowGroups) -> None:
    before = store.get(POSITION)
    store.put(POSITION, Record(b"\xc1x", b"t" * 16), expect=before and before.token)


def test_a_position_that_cannot_be_decoded_is_reported_and_removed(bench: Bench, store: SlowGroups) -> None:
    spoil_position(store)
    assert bench.deployment.sweeper.sweep().subjects == 9
    bench.deployment = bench.another_process()
    while not bench.deployment.sweeper.sweep().is_complete:
        pass
    assert store.tended == SUBJECTS
    assert [value for name, value in bench.meter.metrics if name == "Faults"] == [1]
    assert store.get(POSITION) is None


def test_a_position_that_is_throttled_ends_no_sweep(bench: Bench, store: SlowGroups) -> None:
    store.is_position_throttled = True
    report = bench.deployment.sweeper.sweep()
    assert (report.subjects, report.left) == (9, 1)


def test_a_sweep_begins_anew_where_the_list_fails_behind_the_position(
    bench: Bench, store: SlowGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    for page in ("_FIRST_PAGE", "_LEAST_PAGE"):
        monkeypatch.setattr(f"hourwheel.registry.subject_list.{page}", 2)
    store.is_list_broken = True
    reports = [bench.deployment.sweeper.sweep_subjects() for _ in range(4)]
    assert store.tended == SUBJECTS[:2] * 2
    assert not any(report.is_complete or report.is_cut_off for report in reports)


class KillerSweep:
    """Kills the process that tends the subject ``name``."""

    class Killed(BaseException):
        pass

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        def prepare(sweep: SubjectSweep) -> None:
            if sweep.entry.name == name:
                raise self.Killed
            real(sweep)

        real = SubjectSweep.prepare
        monkeypatch.setattr(SubjectSweep, "prepare", prepare)

    def sweep(self, bench: Bench) -> bool:
        """Sweeps, and returns whether the process lives."""
        try:
            bench.deployment.sweeper.sweep_subjects()
        except self.Killed:
            bench.deployment = bench.another_process()
            return False
        return True


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("seconds", [0, 1, 5])
@pytest.mark.parametrize("killer", [SUBJECTS[0], SUBJECTS[4], SUBJECTS[17], SUBJECTS[-1]])
def test_subjects_behind_one_that_kills_each_process_are_tended(
    bench: Bench, store: SlowGroups, monkeypatch: pytest.MonkeyPatch, killer: str, seconds: int, threads: int
) -> None:
    store.seconds, bench.threads = seconds, threads
    bench.deployment = bench.another_process()
    sweeps = KillerSweep(monkeypatch, killer)
    for _ in range(2):  # from a new process, and from one that has swept before
        store.tended.clear()
        for _ in range(10 * threads):
            sweeps.sweep(bench)
            bench.clock.pass_time(60)
        assert set(store.tended) == set(SUBJECTS) - {killer}


def test_a_sweep_that_is_over_at_once_stores_no_position(bench: Bench, store: SlowGroups) -> None:
    store.seconds = 0
    bench.deployment.sweeper.sweep_subjects()
    store.calls.clear()
    for _ in range(5):
        bench.clock.pass_time(60)
        bench.deployment.sweeper.sweep_subjects()
    assert not store.writes


def test_a_position_that_none_renews_is_forgotten(bench: Bench, store: SlowGroups) -> None:
    others = bench.another_process()
    bench.deployment.sweeper.sweep_subjects()  # this process dies
    store.seconds = 0
    bench.clock.pass_time(2 * QUARTER_SECONDS)
    bench.meter.metrics.clear()
    assert others.sweeper.sweep_subjects().subjects == 30
    assert not [value for name, value in bench.meter.metrics if name == "SweepSeconds" and value > 1]
