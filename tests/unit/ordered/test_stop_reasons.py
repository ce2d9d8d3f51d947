"""A stopped key tells why its last attempt failed, and so does the dead letter that an operator makes of it."""

from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.model.fields import DETAILS_BYTES
from hourwheel.model.lag import HeldKeys
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull, Rejection, RetryLater
from hourwheel.ordered.snapshots import Snapshots
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.trace.messages import SearchSpan
from tests.support import AT_ONCE, Bench, CallByCall

BOTH = pytest.mark.parametrize("store", [MemoryStore, lambda: CallByCall(MemoryStore())], ids=["transactions", "calls"])


def bench_of(*keys: str, store: Any = MemoryStore, attempts: int = 1) -> Bench:
    """Returns an ordered group that stops its keys, and two messages of each key."""
    bench = Bench(store=store())
    bench.deployment.groups.put(
        "orders", "billing", ordered=True, when_dead="stop", max_attempts=attempts, retry=AT_ONCE
    )
    bench.deployment.produce(
        "orders", [NewMessage(body=f"{key}{number}", key=key) for number in (1, 2) for key in keys]
    )
    return bench


def one(bench: Bench) -> Pull:
    (pull,) = bench.pull()
    return pull


def reasons(bench: Bench) -> list[tuple[str | None, str | None, str | None]]:
    held = bench.deployment.groups.lag("orders", "billing").held
    assert isinstance(held, HeldKeys)
    return [(each.key, each.reason, each.detail) for each in held.first]


def log_of(bench: Bench) -> PullLog:
    """Returns the pull log of the only queue."""
    owner = bench.deployment.subjects.get("orders")
    logs = pull_logs(bench.deployment.context, owner, bench.deployment.registry.group(owner, "billing"))
    return next(log for log in logs if log.queue == 0)


def letters(bench: Bench) -> list[tuple[str | None, str | None, str | None]]:
    page = bench.deployment.dead_letters("orders", "billing").page(after=None, limit=1_000)
    return sorted((each.body, each.reason, each.detail) for each in page.messages)  # type: ignore[type-var]


@BOTH
def test_the_lag_and_the_dead_letters_tell_why_the_last_attempts_failed(store: Any) -> None:
    bench = bench_of("a", "b", "c", store=store)
    failed = RetryLater(index=0, detail="ValueError: no price"), 2
    bench.settle(one(bench), retry=[*failed], dead=[Rejection(index=1, detail="no such customer")], ack=[3, 4, 5])
    expected = [
        ("a", "attempts", "ValueError: no price"),
        ("b", "rejected", "no such customer"),
        ("c", "attempts", None),
    ]
    assert reasons(bench) == expected
    bench.deployment = bench.another_process()
    assert reasons(bench) == expected
    assert bench.deployment.groups.decide("orders", "billing", None, "dead") == 3
    assert letters(bench) == [(f"{key}1", reason, detail) for key, reason, detail in expected]


def test_the_reason_is_kept_in_the_snapshot_for_as_long_as_the_key_is_stopped() -> None:
    bench = bench_of("a")
    bench.settle(one(bench), retry=[RetryLater(index=0, detail="ValueError: no price")])
    bench.clock.pass_time(3_600)
    bench.deployment.sweeper.sweep()
    log = log_of(bench)
    for row_no, row in log.rows(0, 10):  # as the store does after three days
        bench.store.delete(log.record(row_no).key, expect=row.token)
    bench.deployment = bench.another_process()
    assert reasons(bench) == [("a", "attempts", "ValueError: no price")]


def test_a_key_that_is_tried_again_has_no_reason_until_it_stops_again() -> None:
    bench = bench_of("a")
    bench.settle(one(bench), retry=[RetryLater(index=0, detail="ValueError: no price")])
    bench.deployment.groups.decide("orders", "billing", None, "retry")
    assert reasons(bench) == []
    bench.settle(one(bench), retry=[RetryLater(index=0, detail="KeyError: 'tax'")])
    assert reasons(bench) == [("a", "attempts", "KeyError: 'tax'")]
    bench.deployment.groups.decide("orders", "billing", None, "retry")
    bench.settle(one(bench))
    assert (reasons(bench), bench.deployment.groups.lag("orders", "billing").waiting) == ([], 0)


def test_a_last_attempt_whose_lease_ended_has_no_detail() -> None:
    bench = bench_of("a")
    for _ in range(2):  # the first end of a lease counts no attempt
        bench.pull(lease=1)
        bench.clock.pass_time(2)
    bench.pull()
    assert reasons(bench) == [("a", "attempts", None)]


def test_a_rejection_before_the_last_attempt_stays_a_rejection() -> None:
    bench = bench_of("a", attempts=3)
    bench.settle(one(bench), dead=[0])
    bench.deployment.groups.decide("orders", "billing", None, "dead")
    assert letters(bench) == [("a1", "rejected", None)]


def test_the_trace_of_a_stopped_message_tells_why_it_failed() -> None:
    bench = bench_of("a")
    bench.settle(one(bench), retry=[RetryLater(index=0, detail="ValueError: no price")])
    bench.deployment.groups.decide("orders", "billing", None, "dead")
    (trace,) = bench.deployment.messages.trace("orders", "0:0", SearchSpan(), "billing").messages
    told = [(event.event, event.reason, event.detail) for event in trace.groups[0].events]
    assert told == [
        ("pulled", None, None),
        ("stopped", "attempts", "ValueError: no price"),
        ("decided", "dead", None),
        ("dead", "attempts", "ValueError: no price"),
    ]


def test_details_share_the_room_of_the_snapshot_and_the_oldest_ones_are_kept() -> None:
    keys = [f"k{number:03d}" for number in range(100)]
    bench = bench_of(*keys)
    detail = "x" * 1_000
    for at in range(len(keys)):
        (pull,) = bench.pull(1)
        bench.settle(pull, retry=[RetryLater(index=0, detail=f"{detail[:990]}{at}")])
    told = reasons(bench)
    kept = [key for key, _, text in told if text is not None]
    assert kept == keys[: len(kept)]
    assert 30 <= len(kept) <= DETAILS_BYTES // 990
    assert {reason for _, reason, _ in told} == {"attempts"}
    bench.clock.pass_time(3_600)
    bench.deployment.sweeper.sweep()
    snapshot = Snapshots.of(log_of(bench)).load()
    assert snapshot is not None
    assert len(msgspec.msgpack.encode(snapshot.stops)) <= DETAILS_BYTES
    bench.deployment = bench.another_process()
    assert reasons(bench) == told
    # A decision makes room for the next ones.
    bench.deployment.groups.decide("orders", "billing", frozenset(kept[:2]), "dead")
    bench.deployment.groups.decide("orders", "billing", frozenset(["k099"]), "retry")
    (pull,) = bench.pull(1)
    while pull.messages[0].body != "k0991":
        bench.settle(pull)
        (pull,) = bench.pull(1)
    bench.settle(pull, retry=[RetryLater(index=0, detail="KeyError")])
    assert ("k099", "attempts", "KeyError") in reasons(bench)
