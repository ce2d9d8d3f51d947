import json
import subprocess
import sys
from pathlib import Path

import pytest

from hourwheel.api.routes import ROUTES
from infra.settings import Settings, Wrong
from tests.infra.synthesis import ACCOUNT, REGION, Synthesis

OPERATOR = f"arn:aws:iam::{ACCOUNT}:role/operator"


def test_each_function_that_serves_requests_has_a_url_that_takes_signed_requests_only(through_urls: Synthesis) -> None:
    urls = through_urls.properties("Lambda::Url")
    functions = {through_urls.resolved(url["TargetFunctionArn"]).rpartition("-")[2] for url in urls}
    assert functions == {route.function for route in ROUTES}
    assert {url["AuthType"] for url in urls} == {"AWS_IAM"}
    assert all("Cors" not in url for url in urls), "no web page calls a function"


def test_there_is_no_api_and_no_access_log_beside_the_urls(through_urls: Synthesis) -> None:
    assert not [kind for kind in through_urls.text.split('"') if kind.startswith("AWS::ApiGateway")]
    assert "vendedlogs" not in through_urls.text
    assert not through_urls.properties("Lambda::Permission"), "IAM policies of callers decide, and nobody else calls"


def test_without_the_setting_no_function_has_a_url(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis in (defaults, everything):
        assert not synthesis.resources("Lambda::Url")
        assert "HOURWHEEL_OPERATORS" not in synthesis.text


def test_the_functions_know_the_operators_and_meta_knows_the_urls(through_urls: Synthesis) -> None:
    functions = {
        found["Properties"]["FunctionName"].rpartition("-")[2]: found["Properties"]["Environment"]["Variables"]
        for found in through_urls.resources("Lambda::Function").values()
        if "FunctionName" in found["Properties"]
    }
    for name in ("produce", "pull", "ack", "meta"):
        assert functions[name]["HOURWHEEL_OPERATORS"] == f"{OPERATOR},arn:aws:iam::{ACCOUNT}:user/ops/anna"
    assert "HOURWHEEL_OPERATORS" not in functions["sweep"]
    endpoints = json.dumps(functions["meta"]["HOURWHEEL_ENDPOINTS"])
    assert all(name in endpoints for name in ("produce", "pull", "ack"))
    assert "HOURWHEEL_ENDPOINTS" not in functions["produce"]


def test_the_outputs_name_the_url_and_what_callers_may_invoke(through_urls: Synthesis) -> None:
    outputs = through_urls.template["Outputs"]
    assert {"ApiUrl", "ProduceArn", "PullArn", "AckArn", "MetaArn"} <= outputs.keys()
    assert "ApiId" not in outputs


def test_server_errors_of_the_urls_raise_the_alarm_of_the_api(through_urls: Synthesis) -> None:
    (alarm,) = (
        found
        for found in through_urls.properties("CloudWatch::Alarm")
        if str(found["AlarmName"]).endswith("-ServerErrors")
    )
    metrics = [each["MetricStat"]["Metric"]["MetricName"] for each in alarm["Metrics"] if "MetricStat" in each]
    assert metrics == ["Url5xxCount"] * 4
    assert "Url4xxCount" in through_urls.text, "on the dashboard"


def test_nag_and_lint_find_nothing(through_urls: Synthesis) -> None:
    (report,) = through_urls.file("validation-report.json")["pluginReports"]
    assert report["violations"] == []
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--regions", REGION, "--ignore-checks", "W3005", "--"]
    ended = subprocess.run(
        [*command, str(through_urls.folder / f"{through_urls.cell}.template.json")], capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"front": "url"}, "nobody could create tokens"),
        ({"front": "ftp"}, "must be api or url"),
        ({"operators": OPERATOR}, "leave it out"),
        ({"front": "url", "operators": "anna"}, "must be ARNs of IAM roles or users"),
        ({"front": "url", "operators": f"arn:aws:iam::{ACCOUNT}:root"}, "must be ARNs of IAM roles or users"),
        ({"front": "url", "operators": ",".join([OPERATOR] * 40)}, "1000 characters"),
        (
            {
                "front": "url",
                "operators": OPERATOR,
                "domain_name": "queue.example.org",
                "certificate_arn": f"arn:aws:acm:eu-west-1:{ACCOUNT}:certificate/0f1e",
            },
            "names of their own",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(Wrong, match=says):
        Settings.read({f"hourwheel:{name}": value for name, value in settings.items()})
