from pathlib import Path
from typing import Any

import pytest

from hourwheel.aws.services import Environment
from infra.settings import Wrong
from tests.infra.synthesis import ACCOUNT, REGION, Synthesis, synthesised

ROOT = Path(__file__).parents[2]
EVERY = {
    "TABLE_PREFIX",
    "BUCKET",
    "WHEEL_FUNCTION",
    "TIMER_GROUP",
    "TIMER_ROLE",
    "BUCKET_MINUTES",
    "SHARDS",
    "CELL",
    "RETENTION_SECONDS",
    "INLINE_BYTES",
}


def test_there_is_one_for_each_folder(defaults: Synthesis, everything: Synthesis, not_much: Synthesis) -> None:
    folders = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert set(everything.functions()) == folders
    assert set(defaults.functions()) == folders - {"archive"}
    assert set(not_much.functions()) == folders - {"archive", "push"}


def test_the_environment_is_that_of_the_contract(each: Synthesis) -> None:
    push = each.settings.get("push") != "false"
    for name, function in each.functions().items():
        wanted = {f"HOURWHEEL_{variable}" for variable in EVERY}
        wanted |= of_calls(name, push=push)
        if push and name in {"meta", "push"}:
            wanted.add("HOURWHEEL_PUSH_TARGETS")
        if push and name in {"meta", "sweep"}:
            wanted.add("HOURWHEEL_PUSH_MAPPING")
        if "archive" in each.functions():
            wanted.add("HOURWHEEL_ARCHIVE")
        if name == "archive" or (name == "meta" and "archive" in each.functions()):
            wanted.add("HOURWHEEL_LAKE_BUCKET")
        if each.settings.get("wake") != "false" and name not in {"push", "archive", "delayed"}:
            wanted.add("HOURWHEEL_WAKE")
        if name == "pull":
            wanted.add("HOURWHEEL_MAX_WAIT_SECONDS")
            if each.resources("KMS::Key"):
                wanted.add("HOURWHEEL_WAKEUP_KEY")
        if name in {"produce", "pull", "meta"}:
            wanted |= {f"HOURWHEEL_{variable}" for variable in ("AUTO_CREATE", "MAX_SUBJECTS", "MAX_GROUPS")}
        wanted |= of_timers(each, name)
        assert function["Environment"]["Variables"].keys() == wanted, name


def of_calls(function: str, *, push: bool) -> set[str]:
    """Returns the variables that name the functions which this one starts, without the wheel, and the number of sweeps
    that are started."""
    shares = {"HOURWHEEL_SWEEP_SHARES"} if function in {"delayed", "sweep"} else set()
    callers = {"SWEEP": {"delayed"}, "PUSH": {"sweep", "push"} if push else set()}
    return shares | {f"HOURWHEEL_{called}_FUNCTION" for called, names in callers.items() if function in names}


def of_timers(synthesis: Synthesis, function: str) -> set[str]:
    """Returns the variables by which a function orders precise timers, or switches the reading of their queue."""
    if synthesis.settings.get("precise_timers") == "false" or function == "archive":
        return set()
    return {"HOURWHEEL_TIMER_QUEUE"} | ({"HOURWHEEL_TIMER_MAPPING"} if function == "delayed" else set())


def test_the_functions_understand_their_environment(each: Synthesis) -> None:
    for name, function in each.functions().items():
        environment = Environment.read(function["Environment"]["Variables"])
        assert environment.cell == environment.table_prefix == each.cell, name
        assert environment.settings.shards == int(each.settings.get("shards", 1)), name
        assert environment.settings.inline_bytes == int(each.settings.get("inline_bytes", 12_288)), name
        assert environment.settings.retention_seconds == int(each.settings.get("retention_seconds", 259_200)), name
        assert environment.settings.archive is ("archive" in each.functions()), name
        assert environment.wheel_function == f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{each.cell}-wheel"


def test_what_may_be_made_reaches_those_who_make_it(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis, quotas in ((defaults, (True, 0, 0)), (everything, (False, 20, 30))):
        for name in ("produce", "pull", "meta"):
            settings = Environment.read(synthesis.functions()[name]["Environment"]["Variables"]).settings
            assert (settings.auto_create, settings.max_subjects, settings.max_groups) == quotas, name


def test_push_targets_reach_who_checks_and_who_calls_them(everything: Synthesis) -> None:
    for name in ("meta", "push"):
        environment = Environment.read(everything.functions()[name]["Environment"]["Variables"])
        assert environment.push_targets.split(",") == [
            f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:ship",
            f"arn:aws:sqs:{REGION}:{ACCOUNT}:orders-*",
            f"shop*=arn:aws:events:{REGION}:{ACCOUNT}:event-bus/shop",
            f"paid=arn:aws:events:{REGION}:{ACCOUNT}:event-bus/shop",
            "https://*.example.org",
        ]


def test_all_run_on_arm_with_both_layers_and_the_python_of_their_byte_code(each: Synthesis) -> None:
    python = (ROOT / "build/layers/runtime.txt").read_text().strip()
    for name, function in each.functions().items():
        assert function["Architectures"] == ["arm64"], name
        assert function["Runtime"] == f"python{python}", name
        assert function["Handler"] == "handler.handler", name
        assert len(function["Layers"]) == 2, name
        assert "TracingConfig" not in function, name


@pytest.mark.parametrize(
    ("name", "seconds", "memory"),
    [
        ("produce", 29, 512),
        ("pull", 29, 512),
        ("ack", 29, 512),
        ("meta", 29, 512),
        ("delayed", 120, 256),
        ("sweep", 300, 256),
        ("wheel", 900, 384),
        ("push", 900, 512),
        ("archive", 900, 1_024),
    ],
)
def test_time_and_memory(defaults: Synthesis, everything: Synthesis, name: str, seconds: int, memory: int) -> None:
    function = (everything if name == "archive" else defaults).functions()[name]
    assert (function["Timeout"], function["MemorySize"]) == (seconds, memory)


def test_each_share_of_the_sweep_has_an_execution_where_the_account_has_room(
    defaults: Synthesis, everything: Synthesis
) -> None:
    reserved = {name: function.get("ReservedConcurrentExecutions") for name, function in everything.functions().items()}
    alone = {name: count for name, count in reserved.items() if name in ("delayed", "sweep", "archive")}
    assert alone == {"delayed": 2, "sweep": 3, "archive": 1}
    assert not any("ReservedConcurrentExecutions" in function for function in defaults.functions().values())


def test_pulls_take_no_more_executions_and_wait_no_longer_than_set(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis, reserved, seconds in ((defaults, None, 20), (everything, 40, 5)):
        pull = synthesis.functions()["pull"]
        assert pull.get("ReservedConcurrentExecutions") == reserved
        assert Environment.read(pull["Environment"]["Variables"]).settings.max_wait_seconds == seconds
        others = {
            name: found
            for name, found in synthesis.functions().items()
            if name not in ("delayed", "sweep", "archive", "pull")
        }
        assert not any("ReservedConcurrentExecutions" in function for function in others.values())


def test_only_functions_that_start_themselves_may_do_so_again_and_again(defaults: Synthesis) -> None:
    loops = {name: function.get("RecursiveLoop") for name, function in defaults.functions().items()}
    assert {name for name, allowed in loops.items() if allowed == "Allow"} == {"wheel", "push"}
    assert set(loops.values()) == {"Allow", None}


def test_events_that_come_to_nothing_are_kept(everything: Synthesis) -> None:
    found = {
        config["FunctionName"]: (
            config["MaximumEventAgeInSeconds"],
            config["MaximumRetryAttempts"],
            config["DestinationConfig"]["OnFailure"]["Destination"].rpartition(":")[2],
        )
        for config in everything.properties("Lambda::EventInvokeConfig")
    }
    queue = everything.failures
    assert found == {
        "orders-eu-delayed": (60, 0, queue),
        "orders-eu-sweep": (300, 0, queue),
        "orders-eu-wheel": (300, 2, queue),
        "orders-eu-push": (300, 0, queue),
        "orders-eu-archive": (900, 0, queue),
    }


def test_each_has_a_log_that_ends(each: Synthesis) -> None:
    groups = {group["LogGroupName"]: group["RetentionInDays"] for group in each.properties("Logs::LogGroup")}
    named = {function["LoggingConfig"]["LogGroup"] for function in each.functions().values()}
    assert named == {f"/aws/lambda/{each.cell}-{name}" for name in each.functions()}
    of_jobs = {f"/hourwheel/{each.cell}/jobs"} if "archive" in each.functions() else set()
    assert groups.keys() == named | {each.access_log} | of_jobs
    assert set(groups.values()) == {int(each.settings.get("log_days", 30))}


def test_delayed_work_is_started_each_minute_before_anything_else(each: Synthesis) -> None:
    assert schedule_of(each, "delayed") == "rate(1 minute)"
    sweep = each.functions()["delayed"]["Environment"]["Variables"]["HOURWHEEL_SWEEP_FUNCTION"]
    assert sweep.endswith(f":function:{each.cell}-sweep")


def test_the_archiver_is_started_as_often_as_set(everything: Synthesis) -> None:
    assert schedule_of(everything, "archive") == "rate(30 minutes)"


def schedule_of(synthesis: Synthesis, function: str) -> str:
    """Returns the schedule of a function, and checks that a failed run is not retried."""
    schedules = synthesis.properties("Scheduler::Schedule")
    (found,) = (one for one in schedules if one["Target"]["Arn"].endswith(f":{synthesis.cell}-{function}"))
    assert found["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert found["Target"]["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    return str(found["ScheduleExpression"])


def test_a_schedule_is_made_after_the_policy_with_which_it_calls(each: Synthesis) -> None:
    schedules = each.resources("Scheduler::Schedule")
    assert schedules
    for key, found in schedules.items():
        role = found["Properties"]["Target"]["RoleArn"]["Fn::GetAtt"][0]
        policies = [
            name
            for name, policy in each.resources("IAM::Policy").items()
            if {"Ref": role} in policy["Properties"]["Roles"]
        ]
        assert policies
        assert set(policies) <= set(found["DependsOn"]), key


def test_layers_of_another_python_than_set_are_refused(tmp_path: Path) -> None:
    other = "3.12" if (ROOT / "build/layers/runtime.txt").read_text().strip() != "3.12" else "3.13"
    with pytest.raises(
        Wrong, match=rf"^the layers are for Python .*, and hourwheel:runtime is {other}: `make layers`$"
    ):
        synthesised({"runtime": other}, tmp_path)


def reader_of_the_stream(synthesis: Synthesis) -> tuple[str, dict[str, Any]]:
    """Returns the event source mapping that reads the stream of the table: its logical id and its properties."""
    found = synthesis.resources("Lambda::EventSourceMapping").items()
    ((name, mapping),) = ((name, mapping) for name, mapping in found if "Timers" not in name)
    return name, synthesis.resolved(mapping["Properties"])


def test_what_is_stored_wakes_push_until_it_is_old(defaults: Synthesis) -> None:
    _, source = reader_of_the_stream(defaults)
    assert source["FunctionName"] == "hourwheel-push"
    assert "table/hourwheel-consume/stream/" in source["EventSourceArn"]
    assert (source["MaximumRetryAttempts"], source["MaximumRecordAgeInSeconds"]) == (-1, 300)
    assert source["FilterCriteria"]["Filters"] == [{"Pattern": '{"eventName":["INSERT"]}'}]
    assert source["BisectBatchOnFunctionError"] is True
    # Lambda skips old records when the mapping is enabled again: no operator has to handle that.
    assert "DestinationConfig" not in source


def test_no_deployment_switches_the_reading_of_the_stream(defaults: Synthesis) -> None:
    mapping, source = reader_of_the_stream(defaults)
    assert "Enabled" not in source
    for name in ("meta", "sweep"):
        environment = Environment.read(defaults.functions()[name]["Environment"]["Variables"])
        assert environment.push_mapping == mapping


def test_without_push_there_is_nothing_of_it(not_much: Synthesis) -> None:
    assert not not_much.resources("Lambda::EventSourceMapping")
    assert "-push" not in not_much.text
