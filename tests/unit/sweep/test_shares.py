"""Sweeps share the subjects: each subject is in one share, whatever the number of shares, and none is left out."""

from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Broken
from hourwheel.ports.storage import Counter, Key, Record, Table
from hourwheel.registry.subject_list import SubjectList
from hourwheel.sweep.report import SweepReport
from hourwheel.sweep.shares import Share, ShareMemory, needed_shares, shares_now, shares_of, store_shares
from hourwheel.sweep.subjects import SubjectSweep
from tests.support import AT_ONCE, Bench, CallByCall

SUBJECTS = [f"s{number:02d}" for number in range(40)]
MINUTE = 60


class CountedReads(CallByCall):
    """Notes how many counters each request reads."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.counted: list[int] = []

    def counters(self, counters: Any, *, consistent: bool = False) -> dict[str, Counter]:
        self.counted.append(len(counters))
        return super().counters(counters, consistent=consistent)


@pytest.fixture(params=[1, 4], ids=["one after the other", "four threads"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Returns forty subjects with a message in each, which a group has taken and not settled."""
    settings = Settings(retry=AT_ONCE, registry_seconds=0, sweep_rest_seconds=1_920, sweep_shares=8)
    bench = Bench(CountedReads(), settings=settings, threads=request.param)
    for subject in SUBJECTS:
        bench.send("x", subject=subject)
        assert bench.pull(subject=subject, lease=3_600)
    return bench


def settle_all(bench: Bench) -> None:
    bench.deployment.sweeper.sweep_subjects()
    for subject in SUBJECTS:
        for pull in bench.pull(subject=subject):
            bench.settle(pull, subject=subject)


@pytest.fixture
def idle(bench: Bench) -> Bench:
    """Returns these subjects once all messages are settled, in a new process."""
    bench.clock.pass_time(3_700)
    settle_all(bench)
    bench.deployment = bench.another_process()
    return bench


@pytest.fixture
def tended(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the subjects that are tended from now on. Each takes five seconds."""
    names: list[str] = []
    real = SubjectSweep.prepare

    def prepare(sweep: SubjectSweep) -> None:
        names.append(sweep.entry.name)
        bench.clock.pass_time(5)
        real(sweep)

    monkeypatch.setattr(SubjectSweep, "prepare", prepare)
    return names


def minute(bench: Bench, shares: int, *, process: bool = False) -> list[SweepReport]:
    """Sweeps each share, in this process or in a new one for each."""
    reports = []
    for share in shares_of(shares):
        deployment = bench.another_process() if process else bench.deployment
        reports.append(deployment.sweeper.sweep_subjects(share))
    return reports


@pytest.mark.parametrize("of", [1, 2, 3, 8, 64])
def test_each_subject_is_in_one_share_and_the_shares_are_about_as_large(of: int) -> None:
    names = [f"subject-{number}" for number in range(6_400)]
    sizes = [sum(share.has(name) for name in names) for share in shares_of(of)]
    assert sum(sizes) == len(names)
    assert all(sum(share.has(name) for share in shares_of(of)) == 1 for name in names)
    assert max(sizes) < 1.5 * len(names) / of


@pytest.mark.parametrize("shares", [1, 2, 3, 8])
def test_the_sweeps_of_all_shares_tend_each_subject_once(bench: Bench, tended: list[str], shares: int) -> None:
    while not all(report.is_complete for report in minute(bench, shares)):
        pass
    assert set(tended) == set(SUBJECTS)
    tended.clear()
    complete = [False] * shares
    while not all(complete):
        for share in shares_of(shares):
            if not complete[share.number]:
                complete[share.number] = bench.deployment.sweeper.sweep_subjects(share).is_complete
    assert sorted(tended) == SUBJECTS


def test_two_sweeps_of_one_share_at_the_same_time_end_each_lease_once(bench: Bench) -> None:
    bench.clock.pass_time(3_700)
    reports = [*minute(bench, 2, process=True), *minute(bench, 2, process=True)]
    assert sum(report.ended_leases for report in reports) == len(SUBJECTS)


@pytest.mark.parametrize("process", [False, True])
def test_no_subject_is_left_out_when_the_number_of_shares_changes(
    bench: Bench, tended: list[str], process: bool
) -> None:
    for shares in (2, 2, 4, 8, 3, 1, 2):  # cut off in the middle of each round
        minute(bench, shares, process=process)
    for shares in (1, 2, 4):
        tended.clear()
        for _ in range(2 * len(SUBJECTS) // (9 * shares) + 2):
            minute(bench, shares, process=process)
        assert set(tended) == set(SUBJECTS), shares


def test_a_share_leaves_the_position_of_another_alone(bench: Bench, tended: list[str]) -> None:
    first, second = shares_of(2)
    assert bench.another_process().sweeper.sweep_subjects(first).is_cut_off
    tended.clear()
    bench.another_process().sweeper.sweep_subjects(second)
    assert tended[0] == next(name for name in SUBJECTS if second.has(name))


def test_what_is_done_once_is_done_by_the_first_share(bench: Bench) -> None:
    bench.settings = Settings(archive=True, sweep_shares=4)
    bench.deployment = bench.another_process()
    minute(bench, 4)
    assert [name for name, _ in bench.meter.metrics].count("ArchiveBehindSeconds") == 1


@pytest.mark.parametrize(
    ("of", "busy", "unknown", "is_cut_off", "wanted"),
    [
        (1, 0, 0, False, 1),
        (1, 160, 0, False, 1),
        (1, 161, 0, False, 2),
        (1, 90, 0, True, 4),
        (4, 150, 0, True, 16),
        (32, 320, 0, False, 64),
        (64, 320, 0, False, 64),
        (64, 157, 0, False, 64),
        (64, 80, 0, False, 64),
        (64, 40, 0, False, 32),
        (64, 0, 0, False, 32),
        (2, 0, 0, False, 1),
        (2, 41, 0, False, 2),
        (4, 0, 0, False, 2),
        (1, 0, 1_000, False, 1),
        (1, 0, 1_000, True, 1),
        (1, 161, 300, True, 2),
        (8, 90, 80, True, 32),
        (8, 0, 1_000, False, 8),
        (8, 0, 1_000, True, 8),
        (8, 0, 40, False, 4),
    ],
)
def test_the_number_of_shares_follows_the_busy_subjects(
    of: int, busy: int, unknown: int, is_cut_off: bool, wanted: int
) -> None:
    assert needed_shares(Share(0, of), busy, unknown, is_cut_off=is_cut_off, most=64) == wanted


def known(bench: Bench) -> int:
    return len(shares_now(bench.deployment.context, ShareMemory()))


def test_shares_become_more_while_subjects_are_busy_and_fewer_when_they_rest(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hourwheel.sweep.shares._BUSY", 6)
    minute(bench, 1)
    assert known(bench) == 8
    for _ in range(5):
        bench.clock.pass_time(MINUTE)
        minute(bench, known(bench))
    assert known(bench) == 8
    for subject in SUBJECTS:
        bench.deployment.subjects.delete(subject)
    numbers = []
    for _ in range(4):
        bench.clock.pass_time(MINUTE)
        minute(bench, known(bench))
        numbers.append(known(bench))
    assert numbers == [4, 2, 1, 1]


def test_a_sweep_that_is_cut_off_asks_for_more_shares(bench: Bench, tended: list[str]) -> None:
    minute(bench, 1)
    assert known(bench) == 4


@pytest.mark.parametrize("process", [False, True], ids=["one process", "a process for each sweep"])
def test_idle_subjects_ask_for_no_shares(idle: Bench, monkeypatch: pytest.MonkeyPatch, process: bool) -> None:
    monkeypatch.setattr("hourwheel.sweep.shares._BUSY", 6)
    for _ in range(40):
        idle.clock.pass_time(MINUTE)
        minute(idle, 1, process=process)
        assert known(idle) == 1


def test_a_sweep_that_first_looks_cut_off_asks_for_no_shares(idle: Bench, tended: list[str]) -> None:
    while not minute(idle, 1)[0].is_complete:
        assert known(idle) == 1
    assert tended == SUBJECTS


def test_a_message_that_waits_or_came_makes_a_subject_busy(idle: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourwheel.sweep.shares._BUSY", 6)
    minute(idle, 1)
    idle.clock.pass_time(MINUTE)
    for subject in SUBJECTS[:12]:  # sent and settled between two sweeps
        idle.send("y", subject=subject)
        for pull in idle.pull(subject=subject):
            idle.settle(pull, subject=subject)
    minute(idle, 1)
    assert known(idle) == 2
    idle.clock.pass_time(MINUTE)
    for subject in SUBJECTS[12:36]:
        idle.send("y", subject=subject)
    minute(idle, 1, process=True)
    assert known(idle) == 4


def test_where_nothing_rests_each_subject_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hourwheel.sweep.shares._BUSY", 6)
    bench.settings = msgspec.structs.replace(bench.settings, sweep_rest_seconds=0)
    bench.deployment = bench.another_process()
    bench.clock.pass_time(3_700)
    settle_all(bench)
    minute(bench, 1)
    assert known(bench) == 8


def test_few_subjects_store_and_read_no_number_of_shares(bench: Bench) -> None:
    minute(bench, 1)
    assert isinstance(bench.store, CountedReads)
    bench.store.calls.clear()
    minute(bench, 1)
    assert not [call for call in bench.store.calls if call[1:] == (Table.META, "sweep")]
    assert bench.store.get(Key(Table.META, "sweep", "shares")) is None


def test_a_number_that_cannot_be_decoded_is_replaced(bench: Bench) -> None:
    bench.store.put(Key(Table.META, "sweep", "shares"), Record(b"\xc1", b"t" * 16), expect=None)
    assert len(bench.deployment.sweeper.delayed.shares()) == 1
    store_shares(bench.deployment.context, 4)
    assert known(bench) == 4


def test_counters_of_many_subjects_are_read_in_one_request_where_calls_take_time(bench: Bench) -> None:
    assert isinstance(bench.store, CountedReads)
    bench.store.counted.clear()
    bench.another_process().sweeper.sweep_subjects()
    assert len(bench.store.counted) == (3 if bench.threads > 1 else 2 * len(SUBJECTS))  # sixteen subjects at a time
    assert sum(bench.store.counted) == 3 * len(SUBJECTS)  # each with three logs


def test_a_list_that_ends_with_an_error_is_tended_up_to_there(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SubjectList.entries

    def entries(listed: SubjectList, *args: Any, **how: Any) -> Any:
        for number, entry in enumerate(real(listed, *args, **how)):
            if number == 20:
                raise Broken("the page is damaged")
            yield entry

    monkeypatch.setattr(SubjectList, "entries", entries)
    report = bench.deployment.sweeper.sweep_subjects()
    assert (report.subjects, report.is_complete) == (20, False)
