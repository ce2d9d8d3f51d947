import json
import re
from pathlib import Path
from typing import Any

from tests.infra.synthesis import ACCOUNT, Synthesis

ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "pipeline/hourwheel_pipeline/outcomes/metrics_upload.py"
LIBRARY = ROOT / "layers/hourwheel/python/hourwheel"

ALARMS = {
    "Faults",
    "UnreadableMessages",
    "OldestMessage",
    "DeadLetters",
    "DispatchLateness",
    "Throttles",
    "SweepStopped",
    "SweepLong",
    "DelayedOverdue",
    "WheelBusy",
    "FailedInvocations",
    "ServerErrors",
    "TooManyRequests",
    "ProduceThrottled",
    "PullThrottled",
    "ConcurrencyUsed",
    "PushBehind",
    "TimersUnread",
}
OF_TABLES = {f"{kind}-{table}" for kind in ("WritesRefused", "WriteUnits") for table in ("counters", "consume", "pull")}
OF_TABLES |= {f"{kind}-{table}" for kind in ("ReadsRefused", "ReadUnits") for table in ("consume", "pull")}
OF_TABLES |= {"WritesRefused-meta", "ReadsRefused-meta"}
OF_PIPELINE = {
    "ArchiveBehind",
    "ArchiveUnreadableRows",
    "ArchiveMissingRows",
    "QuarantinedSegments",
    "ArchiveLacksObjects",
    "ReconcileFindings",
    "PipelineStopped",
}


def alarms(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    found = synthesis.properties("CloudWatch::Alarm")
    return {alarm["AlarmName"].removeprefix(f"{synthesis.cell}-"): alarm for alarm in found}


def looked_at(alarm: dict[str, Any]) -> dict[str, Any]:
    """Returns the only metric of an alarm."""
    (found,) = (metric["MetricStat"]["Metric"] for metric in alarm["Metrics"]) if "Metrics" in alarm else (alarm,)
    return dict(found)


def test_the_alarms(defaults: Synthesis, everything: Synthesis, not_much: Synthesis) -> None:
    assert set(alarms(defaults)) == ALARMS | OF_TABLES
    assert set(alarms(everything)) == ALARMS | OF_TABLES | OF_PIPELINE
    assert set(alarms(not_much)) == ALARMS - {"PushBehind", "TooManyRequests", "TimersUnread"}


def test_tables_are_near_their_quota_at_80_percent_of_its_units(defaults: Synthesis) -> None:
    found = alarms(defaults)
    metric = looked_at(found["WriteUnits-consume"])
    assert (metric["Namespace"], metric["MetricName"]) == ("AWS/DynamoDB", "ConsumedWriteCapacityUnits")
    assert metric["Dimensions"] == [{"Name": "TableName", "Value": "hourwheel-consume"}]
    assert found["WriteUnits-consume"]["Threshold"] == 0.8 * 40_000 * 300
    assert looked_at(found["ReadsRefused-pull"])["MetricName"] == "ReadThrottleEvents"


def test_the_runbook_has_each_alarm_and_no_other() -> None:
    text = (ROOT / "docs/reference/alarms.md").read_text()
    every = ALARMS | OF_PIPELINE | {"TimersUnread"} | {name.partition("-")[0] for name in OF_TABLES}
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(every)
    assert dict(re.findall(r"\[`(\w+)`\]\(#(\w+)\)", text)) == {name: name.lower() for name in every}


def test_without_metrics_there_is_no_alarm_unless_a_recurring_run_has_stopped(each: Synthesis) -> None:
    missing = {name: alarm["TreatMissingData"] for name, alarm in alarms(each).items()}
    for name in {"SweepStopped", "PipelineStopped"} & missing.keys():
        assert missing.pop(name) == "breaching"
    assert set(missing.values()) == {"notBreaching"}


def test_sweeps_count_once_they_are_completed(each: Synthesis) -> None:
    alarm = alarms(each)["SweepStopped"]
    (looked,) = (one["MetricStat"] for one in alarm["Metrics"]) if "Metrics" in alarm else (alarm,)
    metric = looked.get("Metric", looked)
    assert (metric["Namespace"], metric["MetricName"]) == ("Hourwheel", "SweepSeconds")
    assert looked.get("Stat", looked.get("Statistic")) == "SampleCount"
    assert (alarm["Threshold"], alarm["EvaluationPeriods"]) == (1, 3)


def test_a_throttled_pull_is_no_error_of_the_server(defaults: Synthesis) -> None:
    alarm = alarms(defaults)["ServerErrors"]
    metrics = {metric["Id"]: metric for metric in alarm["Metrics"]}
    (told,) = (metric for metric in metrics.values() if "Expression" in metric)
    assert told["Expression"] == "errors - FILL(throttled, 0)"
    errors, throttled = (metrics[name]["MetricStat"]["Metric"] for name in ("errors", "throttled"))
    assert (errors["Namespace"], errors["MetricName"]) == ("AWS/ApiGateway", "5xx")
    assert (throttled["Namespace"], throttled["MetricName"]) == ("AWS/Lambda", "Throttles")
    assert throttled["Dimensions"] == [{"Name": "FunctionName", "Value": "hourwheel-pull"}]


def test_a_wheel_is_told_before_it_is_late(defaults: Synthesis) -> None:
    alarm = alarms(defaults)["WheelBusy"]
    assert (looked_at(alarm)["MetricName"], alarm["Threshold"]) == ("WheelBusyPercent", 80)
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"]) == (2, 3)


def test_a_job_that_has_not_run_for_two_days_is_missed(everything: Synthesis) -> None:
    alarm = alarms(everything)["PipelineStopped"]
    (looked,) = (one["MetricStat"] for one in alarm["Metrics"])
    assert (looked["Metric"]["MetricName"], looked["Stat"]) == ("ReconcileFindings", "SampleCount")
    assert (looked["Period"], alarm["EvaluationPeriods"]) == (86_400, 2)
    assert (alarm["Threshold"], alarm["ComparisonOperator"]) == (1, "LessThanThreshold")


def test_the_archive_is_behind_when_it_was_missed_twice(everything: Synthesis) -> None:
    assert alarms(everything)["ArchiveBehind"]["Threshold"] == 3 * 30 * 60


def test_thresholds_are_as_set(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis, oldest, dead in ((defaults, 3_600, 0), (everything, 120, 5)):
        found = alarms(synthesis)
        assert found["OldestMessage"]["Threshold"] == oldest
        assert found["DeadLetters"]["Threshold"] == dead


def test_executions_are_told_before_they_are_used_up(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis, most in ((defaults, 800), (everything, 160)):
        found = alarms(synthesis)["ConcurrencyUsed"]
        metric = looked_at(found)
        assert (metric["Namespace"], metric["MetricName"]) == ("AWS/Lambda", "ConcurrentExecutions")
        assert found["Threshold"] == most
        assert "Dimensions" not in metric, "all functions of the account share one limit"
        for name in ("Produce", "Pull"):
            throttled = looked_at(alarms(synthesis)[f"{name}Throttled"])
            assert (throttled["Namespace"], throttled["MetricName"]) == ("AWS/Lambda", "Throttles")
            assert throttled["Dimensions"] == [{"Name": "FunctionName", "Value": f"{synthesis.cell}-{name.lower()}"}]


def test_requests_that_a_throttle_refused_are_counted_from_the_access_log(defaults: Synthesis) -> None:
    each = defaults
    (counted,) = each.properties("Logs::MetricFilter")
    assert counted["LogGroupName"] == each.access_log
    assert counted["FilterPattern"] == '{ $.status = "429" }'
    (told,) = counted["MetricTransformations"]
    found = looked_at(alarms(each)["TooManyRequests"])
    assert (told["MetricNamespace"], told["MetricName"]) == (found["Namespace"], found["MetricName"])


def test_a_log_that_costs_half_makes_no_metrics(not_much: Synthesis) -> None:
    groups = {group["LogGroupName"]: group for group in not_much.properties("Logs::LogGroup")}
    assert groups.pop(not_much.access_log)["LogGroupClass"] == "INFREQUENT_ACCESS"
    assert {group.get("LogGroupClass", "STANDARD") for group in groups.values()} == {"STANDARD"}, "they hold metrics"
    assert not not_much.resources("Logs::MetricFilter")


def test_alarms_are_mailed_if_there_is_an_address(defaults: Synthesis, everything: Synthesis) -> None:
    assert not defaults.resources("SNS::Topic")
    assert not any("AlarmActions" in alarm for alarm in alarms(defaults).values())
    (topic,) = everything.resources("SNS::Topic")
    (subscription,) = everything.properties("SNS::Subscription")
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.org")
    for name, alarm in alarms(everything).items():
        assert alarm["AlarmActions"] == alarm["OKActions"] == [topic], name


def test_alarms_of_this_account_reach_the_topic_and_over_tls_only(everything: Synthesis) -> None:
    (topic,) = everything.resources("SNS::Topic")
    (policy,) = everything.properties("SNS::TopicPolicy")
    found = {statement["Effect"]: statement for statement in policy["PolicyDocument"]["Statement"]}
    assert found["Deny"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert found["Allow"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert found["Allow"]["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}
    assert (found["Allow"]["Action"], found["Allow"]["Resource"]) == ("sns:Publish", topic)


def test_alarms_look_at_metrics_of_this_cell(everything: Synthesis) -> None:
    own = [
        metric["MetricStat"]["Metric"]
        for alarm in alarms(everything).values()
        for metric in alarm.get("Metrics", ())
        if "MetricStat" in metric and metric["MetricStat"]["Metric"]["Namespace"] == "Hourwheel"
    ]
    assert own
    assert all(metric["Dimensions"] == [{"Name": "service", "Value": "orders-eu"}] for metric in own)
    expressions = [
        metric["Expression"]
        for alarm in alarms(everything).values()
        for metric in alarm.get("Metrics", ())
        if "Expression" in metric
    ]
    assert expressions == ["errors - FILL(throttled, 0)"], "all others look at one figure: each costs"


def test_the_dashboard_shows_each_figure_that_is_recorded_and_the_docs_name(everything: Synthesis) -> None:
    (dashboard,) = everything.properties("CloudWatch::Dashboard")
    on_aws = [path for path in LIBRARY.rglob("*.py") if "embedded" not in path.parts]
    recorded = {name for path in on_aws for name in re.findall(r"\brecord\(\s*\"([A-Z]\w+)\"", path.read_text())}
    of_jobs = set(re.findall(r"\bmetrics\[\"([A-Z]\w+)\"\]", FIGURES.read_text()))
    assert {"ReconcileFindings", "QuarantinedSegments", "ArchiveLacksObjects"} == of_jobs
    recorded |= of_jobs
    told = set(re.findall(r"^\| ([A-Z]\w+) \|", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE))
    assert {"Faults", "DispatchLateness"} <= recorded <= told
    assert {name for name in told if f'"{name}"' not in dashboard["DashboardBody"]} == set()


def test_without_the_pipeline_nothing_of_it_is_shown(defaults: Synthesis) -> None:
    (dashboard,) = defaults.properties("CloudWatch::Dashboard")
    assert not re.search(r"Archive|Reconcile|Quarantined", dashboard["DashboardBody"])


def test_the_dashboard_lists_groups_that_have_something_waiting(defaults: Synthesis) -> None:
    (dashboard,) = defaults.properties("CloudWatch::Dashboard")
    (logs,) = (found for found in json.loads(dashboard["DashboardBody"])["widgets"] if found["type"] == "log")
    query = logs["properties"]["query"]
    assert query.startswith("SOURCE '/aws/lambda/hourwheel-sweep'")
    assert all(name in query for name in ('"lag"', "waiting", "in_flight", "retrying", "oldest_seconds", "subject"))


def test_the_dashboard_can_be_left_out(not_much: Synthesis) -> None:
    assert not not_much.resources("CloudWatch::Dashboard")
