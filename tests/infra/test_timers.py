"""The queue of precise timers starts the wheel, and nobody else reads it or is told of it without TLS."""

from pathlib import Path
from typing import Any

import pytest

from hourwheel.aws.services import Environment
from infra.permissions import ORDERS_WHEELS
from tests.infra.synthesis import Synthesis, synthesised


@pytest.fixture(scope="module")
def off(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Synthesises the templates without precise timers, and with all other defaults."""
    return synthesised({"precise_timers": "false"}, tmp_path_factory.mktemp("off"))


def test_the_setting_is_on_unless_somebody_switches_it_off(defaults: Synthesis, tmp_path: Path) -> None:
    chosen = synthesised({"precise_timers": "true"}, tmp_path)
    assert chosen.template == defaults.template
    assert "Timers" in defaults.text


def test_the_setting_adds_a_queue_its_policy_its_reader_and_an_alarm(defaults: Synthesis, off: Synthesis) -> None:
    before, after = off.template["Resources"], defaults.template["Resources"]
    added = {key: after[key]["Type"].rpartition(":")[2] for key in after.keys() - before.keys()}
    assert sorted(added.values()) == ["Alarm", "EventSourceMapping", "Queue", "QueuePolicy"]
    assert all("Timers" in key for key in added)
    assert before.keys() < after.keys()
    assert {after[key]["Type"] for key in before if after[key] != before[key]} == {
        "AWS::CloudWatch::Dashboard",
        "AWS::IAM::Policy",
        "AWS::Lambda::Function",
    }
    for key in off.resources("Lambda::Function"):
        assert untimed(after[key]["Properties"]) == before[key]["Properties"], key


def untimed(function: dict[str, Any]) -> dict[str, Any]:
    """Returns the properties of a function without the variables of precise timers."""
    own = ("HOURWHEEL_TIMER_QUEUE", "HOURWHEEL_TIMER_MAPPING")
    variables = function["Environment"]["Variables"]
    kept = {name: value for name, value in variables.items() if name not in own}
    return {**function, "Environment": {"Variables": kept}}


def test_without_the_setting_there_is_no_queue_and_nothing_reads_one(off: Synthesis) -> None:
    assert [key for key in off.resources("SQS::Queue") if "Timers" in key] == []
    assert [key for key in off.resources("Lambda::EventSourceMapping") if "Timers" in key] == []
    for name, function in off.functions().items():
        assert Environment.read(function["Environment"]["Variables"]).timer_queue is None, name


def test_the_queue_starts_the_wheel_once_the_sweeper_has_it_read(everything: Synthesis) -> None:
    (mapping,) = (key for key in everything.resources("Lambda::EventSourceMapping") if "Timers" in key)
    source = everything.resolved(everything.resources("Lambda::EventSourceMapping")[mapping]["Properties"])
    assert source["FunctionName"].endswith("-wheel")
    assert "Enabled" not in source, "else a deployment would switch it off while timers wait"
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    (queue,) = (key for key in everything.resources("SQS::Queue") if "Timers" in key)
    assert source["EventSourceArn"].endswith(queue)
    for name, function in everything.functions().items():
        environment = function["Environment"]["Variables"]
        url = environment.get("HOURWHEEL_TIMER_QUEUE")
        assert (url and url.rpartition("/")[2]) == (queue if name in ORDERS_WHEELS else None), name
        assert environment.get("HOURWHEEL_TIMER_MAPPING") == (mapping if name == "delayed" else None), name


def test_a_message_is_hidden_as_long_as_the_wheel_may_run_and_ends_among_the_failures(everything: Synthesis) -> None:
    (queue,) = (found for key, found in everything.resources("SQS::Queue").items() if "Timers" in key)
    properties = everything.resolved(queue["Properties"])
    assert properties["VisibilityTimeout"] == everything.functions()["wheel"]["Timeout"]
    redrive = properties["RedrivePolicy"]
    assert redrive["deadLetterTargetArn"].endswith(everything.failures)
    # Its tries must be over before it is removed, and it may wait for 15 minutes before them.
    tries_seconds = redrive["maxReceiveCount"] * properties["VisibilityTimeout"]
    assert 900 + tries_seconds < properties["MessageRetentionPeriod"]


def test_the_queue_takes_nothing_without_tls(everything: Synthesis) -> None:
    (queue,) = (key for key in everything.resources("SQS::Queue") if "Timers" in key)
    (policy,) = (found for found in everything.properties("SQS::QueuePolicy") if queue in str(found["Queues"]))
    (denied,) = policy["PolicyDocument"]["Statement"]
    assert denied["Effect"] == "Deny"
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
