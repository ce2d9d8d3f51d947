"""The sweeper counts the parked messages and the held keys of ordered groups."""

import logging

import pytest

from hourwheel.context import Settings
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import Pull
from tests.support import Bench


@pytest.fixture
def held() -> Bench:
    """Returns a bench in which a failed message holds key a for ten minutes, and two messages wait behind it."""
    bench = Bench(settings=Settings(registry_seconds=0, sweep_rest_seconds=1_920))
    bench.deployment.groups.put("orders", "billing", ordered=True, retry=RetryPolicy(first_seconds=600))
    bench.deployment.produce("orders", [NewMessage(body=name, key=name[0]) for name in ("a1", "a2", "a3", "b1")])
    first, second = one(bench), one(bench)
    bench.settle(first, retry=[0])
    bench.settle(second)
    bench.meter.metrics.clear()
    return bench


def one(bench: Bench) -> Pull:
    (pull,) = bench.pull(1)
    return pull


def test_the_sweeper_counts_parked_messages_and_held_keys(held: Bench) -> None:
    held.deployment.sweeper.sweep()
    assert dict(held.meter.metrics).keys() >= {"WaitingMessages", "HeldKeys"}
    assert (dict(held.meter.metrics)["WaitingMessages"], dict(held.meter.metrics)["HeldKeys"]) == (2, 1)


def test_the_log_names_the_group_with_held_keys(held: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hourwheel")
    held.clock.pass_time(60)
    held.deployment.sweeper.sweep()
    (line,) = [vars(record) for record in caplog.records if record.message == "lag"]
    told = {name: line[name] for name in ("group", "waiting", "retrying", "held_keys", "oldest_seconds")}
    assert told == {"group": "billing", "waiting": 2, "retrying": 0, "held_keys": 1, "oldest_seconds": 60}


def test_a_failed_message_that_is_due_counts_as_a_retry(held: Bench) -> None:
    held.clock.pass_time(600)
    held.deployment.sweeper.sweep()
    assert dict(held.meter.metrics)["WaitingMessages"] == 3


def test_a_subject_with_held_keys_does_not_rest(held: Bench) -> None:
    for _ in range(5):
        held.clock.pass_time(60)
        assert held.deployment.sweeper.sweep().resting == 0
    assert [value for name, value in held.meter.metrics if name == "HeldKeys"] == [1] * 5


def test_a_group_whose_keys_are_free_again_has_no_such_metric(held: Bench) -> None:
    held.clock.pass_time(600)
    for pull in held.pull():
        held.settle(pull)
    held.meter.metrics.clear()
    held.deployment.sweeper.sweep()
    assert not {"HeldKeys", "WaitingMessages"} & dict(held.meter.metrics).keys()
