"""Rows that were given out at the end of a log and never stored: no consumer and no lag waits for them for ever."""

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.logs.log import Log
from hourwheel.logs.rows import row_key
from hourwheel.model.pulls import PullRequest
from tests.support import Bench, CallByCall


@pytest.fixture
def bench() -> Bench:
    """Returns a bench in which one message was delivered; a producer then took row 1 for two messages, and died."""
    bench = Bench(CallByCall(MemoryStore()))
    bench.send("a")
    bench.settle(*bench.pull())
    queue(bench).reserve(2)
    return bench


def queue(bench: Bench) -> Log:
    return bench.deployment.context.log("orders~1/0")


def waiting(bench: Bench) -> int:
    lag = bench.deployment.groups.lag("orders", "billing")
    return lag.waiting + lag.retrying


def sweep(bench: Bench, *, after: float) -> None:
    bench.clock.pass_time(after)
    bench.deployment.sweeper.sweep()


def test_lag_is_zero_after_two_sweeps_a_minute_apart(bench: Bench) -> None:
    sweep(bench, after=0)
    assert waiting(bench) == 2
    sweep(bench, after=60)
    assert waiting(bench) == 0


def test_a_row_that_was_given_out_less_than_a_minute_ago_is_left_to_its_writer(bench: Bench) -> None:
    for _ in range(5):
        sweep(bench, after=59)
        queue(bench).reserve(1)
    rows = [number for number, _ in queue(bench).stored(0)]
    assert 6 not in rows
    sweep(bench, after=59)
    assert queue(bench).get(6) is None


def test_only_what_this_process_has_seen_for_a_minute_counts(bench: Bench) -> None:
    sweep(bench, after=0)
    bench.deployment = bench.another_process()
    sweep(bench, after=60)
    assert waiting(bench) == 2


def test_a_clock_that_is_set_back_begins_the_minute_anew(bench: Bench) -> None:
    sweep(bench, after=0)
    sweep(bench, after=-600)
    sweep(bench, after=59)
    assert waiting(bench) == 2


def test_the_late_writer_appends_anew_and_its_messages_come_once(bench: Bench) -> None:
    late = queue(bench).reserve(1)
    sweep(bench, after=0)
    sweep(bench, after=60)
    row = queue(bench).get(0)
    assert row is not None
    position = queue(bench).append(row, late)
    assert position.row_no > late.row_no
    (pull,) = bench.pull()
    assert [message.body for message in pull.messages] == ["a"]


def test_retry_and_dead_logs_are_filled_too(bench: Bench) -> None:
    for log in ("orders~1/retry/billing~1", "orders~1/dead/billing~1"):
        bench.deployment.context.log(log).reserve(1)
    sweep(bench, after=0)
    assert bench.deployment.groups.lag("orders", "billing").retrying == 1
    sweep(bench, after=60)
    assert waiting(bench) == 0
    for log in ("orders~1/retry/billing~1", "orders~1/dead/billing~1"):
        found = bench.deployment.context.log(log).get(0)
        assert found is not None
        assert found.filler


def test_a_filler_is_kept_as_long_as_the_messages_before_it(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    sweep(bench, after=0)
    sweep(bench, after=60)
    before, filler = queue(bench).get(0), queue(bench).get(1)
    assert before is not None
    assert filler is not None
    assert filler.expires_ms >= before.expires_ms


def test_a_consumer_that_waits_no_longer_looks_at_the_log(bench: Bench) -> None:
    sweep(bench, after=0)
    sweep(bench, after=60)
    assert isinstance(bench.store, CallByCall)
    bench.deployment.pull("orders", "billing", PullRequest(consumer="c"))
    bench.store.calls.clear()
    bench.deployment.pull("orders", "billing", PullRequest(consumer="c"))
    assert ("scan", "consume") not in bench.store.calls


def test_a_log_whose_rows_are_all_there_is_read_once(bench: Bench) -> None:
    assert isinstance(bench.store, CallByCall)
    sweep(bench, after=0)
    sweep(bench, after=60)
    bench.send("b")
    bench.settle(*bench.pull())
    scans = []
    for _ in range(4):
        bench.store.calls.clear()
        sweep(bench, after=60)
        scans.append(bench.store.calls.count(("scan", "consume")))
    assert scans[1] == scans[0] + 1
    assert scans[2:] == [scans[0]] * 2


def test_rows_at_the_end_that_the_store_has_removed_do_not_wait_for_ever(bench: Bench) -> None:
    sweep(bench, after=0)
    sweep(bench, after=60)
    position = queue(bench).reserve(1)
    row = queue(bench).get(0)
    assert row is not None
    queue(bench).put(position, row, b"short-lived")
    sweep(bench, after=0)
    sweep(bench, after=60)
    key = row_key("orders~1/0", position.row_no)
    bench.store.delete(key, expect=b"short-lived")
    assert waiting(bench) > 0
    sweep(bench, after=12 * 3_600)
    assert waiting(bench) == 0
