"""The trace of a message in an ordered group tells each pull, why the message came again, and what it waits for."""

from typing import Any

import pytest

from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull
from hourwheel.model.traces import GroupTrace
from hourwheel.times import rfc3339
from hourwheel.trace.messages import SearchSpan
from tests.support import AT_ONCE, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def with_group(bench: Bench, **settings: Any) -> None:
    """Makes an ordered group, and sends two messages of one key."""
    bench.deployment.groups.put("orders", "billing", ordered=True, **{"retry": AT_ONCE, **settings})
    bench.deployment.produce("orders", [NewMessage(body=body, key="a") for body in ("a1", "a2")])


def one(bench: Bench, limit: int = 100, **how: Any) -> Pull:
    (pull,) = bench.pull(limit, **how)
    return pull


def traced(bench: Bench, offset: int) -> GroupTrace:
    (page,) = bench.deployment.messages.trace("orders", f"0:{offset}", SearchSpan(), "billing").messages
    (trace,) = page.groups
    return trace


def events(trace: GroupTrace) -> list[tuple[str, int | None]]:
    return [(event.event, event.attempt) for event in trace.events]


def test_each_pull_of_a_message_and_its_retry_in_place(bench: Bench) -> None:
    with_group(bench, retry=RetryPolicy(first_seconds=60))
    pull = one(bench, 1)
    assert (traced(bench, 0).state, events(traced(bench, 0))) == ("in_flight", [("pulled", 1)])
    assert (traced(bench, 1).state, events(traced(bench, 1))) == ("waiting", [])
    bench.settle(pull, retry=[0])
    waits = traced(bench, 0)
    assert (waits.state, events(waits)) == ("backing_off", [("pulled", 1), ("retried", 1)])
    assert (waits.events[1].at, waits.events[1].due_at) == (rfc3339(bench.clock.ms), rfc3339(bench.clock.ms + 60_000))
    bench.clock.pass_time(60)
    assert traced(bench, 0).state == "retrying"
    bench.settle(one(bench, 1))
    done = traced(bench, 0)
    assert done.state == "acknowledged"
    assert events(done) == [("pulled", 1), ("retried", 1), ("pulled", 2), ("acknowledged", 2)]


def test_a_message_behind_a_failed_one_was_released_and_waits_for_its_turn(bench: Bench) -> None:
    with_group(bench, retry=RetryPolicy(first_seconds=60))
    bench.settle(one(bench), retry=[0])
    behind = traced(bench, 1)
    assert (behind.state, events(behind)) == ("waiting", [("pulled", 1), ("released", 1)])
    bench.clock.pass_time(60)
    assert [traced(bench, offset).state for offset in range(2)] == ["retrying", "retrying"]
    one(bench, 1)
    assert [traced(bench, offset).state for offset in range(2)] == ["in_flight", "waiting"]


def test_the_end_of_a_lease(bench: Bench) -> None:
    with_group(bench)
    one(bench, lease=10)
    bench.clock.pass_time(10)
    bench.pull()
    assert events(traced(bench, 0)) == [("pulled", 1), ("lease_ended", 1), ("pulled", 1)]


def test_a_failure_in_a_pull_that_is_not_settled_yet_has_no_time(bench: Bench) -> None:
    with_group(bench)
    bench.send("b1", key="b")
    bench.settle(one(bench), ack=[], retry=[0])
    (_, retried) = traced(bench, 0).events
    assert (retried.event, retried.at) == ("retried", None)
    assert [traced(bench, offset).state for offset in range(3)] == ["retrying", "retrying", "in_flight"]


def test_a_stop_the_decision_to_retry_and_the_second_first_attempt(bench: Bench) -> None:
    with_group(bench, max_attempts=1, when_dead="stop")
    bench.settle(one(bench), retry=[0])
    stops = traced(bench, 0)
    assert (stops.state, events(stops)) == ("stopped", [("pulled", 1), ("stopped", 1)])
    assert stops.events[1].due_at is None
    assert traced(bench, 1).state == "waiting"
    bench.deployment.groups.decide("orders", "billing", None, "retry")
    assert [traced(bench, offset).state for offset in range(2)] == ["retrying", "retrying"]
    bench.settle(one(bench))
    done = traced(bench, 0)
    assert done.state == "acknowledged"
    assert events(done) == [("pulled", 1), ("stopped", 1), ("decided", None), ("pulled", 1), ("acknowledged", 1)]
    assert done.events[2].reason == "retry"


def test_the_decision_to_give_a_message_up(bench: Bench) -> None:
    with_group(bench, max_attempts=1, when_dead="stop")
    bench.settle(one(bench), retry=[0])
    bench.deployment.groups.decide("orders", "billing", None, "dead")
    dead = traced(bench, 0)
    assert dead.state == "dead"
    assert events(dead) == [("pulled", 1), ("stopped", 1), ("decided", None), ("dead", 1)]
    assert [event.reason for event in dead.events[2:]] == ["dead", "attempts"]
    assert traced(bench, 1).state == "retrying"


def test_a_dead_letter_that_is_redriven_and_acknowledged(bench: Bench) -> None:
    with_group(bench, max_attempts=1)
    bench.settle(one(bench), retry=[0])
    assert traced(bench, 0).state == "dead"
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, at_ms: True)
    assert traced(bench, 0).state == "retrying"
    for pull in bench.pull():
        bench.settle(pull)
    done = traced(bench, 0)
    assert done.state == "acknowledged"
    assert events(done)[-3:] == [("redriven", None), ("pulled", 1), ("acknowledged", 1)]


def test_a_redriven_dead_letter_is_followed_after_its_row_was_removed(bench: Bench) -> None:
    with_group(bench, max_attempts=1)
    bench.settle(one(bench), retry=[0])
    bench.clock.pass_time(60)
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, at_ms: True)
    bench.deployment.sweeper.sweep()
    assert traced(bench, 0).state == "retrying"
    for pull in bench.pull():
        bench.settle(pull)
    bench.clock.pass_time(120)
    bench.deployment.sweeper.sweep()
    done = traced(bench, 0)
    assert (done.state, done.complete) == ("acknowledged", True)
    assert events(done) == [("pulled", 1), ("dead", 1), ("redriven", None), ("pulled", 1), ("acknowledged", 1)]


def test_the_last_of_three_attempts_whose_lease_ends_before_a_redrive_is_no_end(bench: Bench) -> None:
    with_group(bench, max_attempts=3, retry=AT_ONCE)
    for _ in range(4):  # the first end of a lease counts no attempt
        bench.pull(1, lease=1)
        bench.clock.pass_time(2)
    bench.deployment.sweeper.sweep()
    assert traced(bench, 0).state == "dead"
    bench.deployment.dead_letters("orders", "billing").redrive(lambda position, at_ms: True)
    for pull in bench.pull():
        bench.settle(pull)
    assert traced(bench, 0).state == "acknowledged"
    bench.clock.pass_time(120)
    bench.deployment.sweeper.sweep()
    assert traced(bench, 0).state == "acknowledged"


def test_a_dropped_dead_letter_whose_row_was_removed_has_not_expired(bench: Bench) -> None:
    with_group(bench, max_attempts=1)
    bench.settle(one(bench), retry=[0])
    bench.deployment.dead_letters("orders", "billing").drop(lambda position, at_ms: True)
    bench.deployment.sweeper.sweep()
    assert (traced(bench, 0).state, traced(bench, 0).complete) == ("unknown", False)


def test_a_dead_letter_that_is_dropped(bench: Bench) -> None:
    with_group(bench, max_attempts=1)
    bench.settle(one(bench), retry=[0])
    bench.deployment.dead_letters("orders", "billing").drop(lambda position, at_ms: True)
    assert traced(bench, 0).state == "dropped"
