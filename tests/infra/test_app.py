import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from infra.settings import PREFIX, Settings, Wrong
from tests.infra.synthesis import FLAGS, REGION, Synthesis

ROOT = Path(__file__).parents[2]


def run_app(context: dict[str, object], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs the app as the CDK does."""
    variables = {**os.environ, "CDK_OUTDIR": str(folder), "CDK_CONTEXT_JSON": json.dumps(context)}
    return subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=variables, capture_output=True, text=True)


def sentences(text: str) -> list[str]:
    """Returns the messages, without jsii's remark on the age of this machine's Node."""
    return [line for line in text.splitlines() if line and not line.startswith("b'!!")]


def test_nothing_that_nag_finds_is_left(each: Synthesis) -> None:
    (report,) = each.file("validation-report.json")["pluginReports"]
    assert report["pluginName"] == "AwsSolutions"
    assert report["violations"] == []


def test_each_acknowledgement_is_for_one_resource_and_says_why(each: Synthesis) -> None:
    (report,) = each.file("validation-report.json")["pluginReports"]
    for finding in report["suppressedViolations"]:
        (construct,) = finding["violatingConstructs"]
        assert construct["constructPath"] == finding["acknowledgedAt"]
        assert len(finding["reason"].split()) > 5
    rules = {finding["ruleName"].partition("[")[0] for finding in report["suppressedViolations"]}
    assert rules <= {f"AwsSolutions-{rule}" for rule in ("IAM5", "L1", "S1", "SQS3")}


def test_the_template_names_neither_account_nor_region_nor_asks_for_anything(defaults: Synthesis) -> None:
    text = re.sub(r"arn:aws:(lambda|sqs|events)", "", defaults.text)
    assert not re.search(r"\b\d{12}\b|\b(us|eu|ap|sa|ca)-[a-z]+-\d\b", text)
    manifest = defaults.file("manifest.json")
    assert "missing" not in manifest
    assert manifest["artifacts"]["hourwheel"]["environment"] == "aws://unknown-account/unknown-region"


def test_no_container_is_built(defaults: Synthesis) -> None:
    assert defaults.file("hourwheel.assets.json")["dockerImages"] == {}


def test_cfn_lint_finds_nothing(each: Synthesis) -> None:
    # The CDK states dependencies that a reference implies already: W3005.
    command = [str(Path(sys.executable).with_name("cfn-lint")), "--regions", REGION, "--ignore-checks", "W3005", "--"]
    ended = subprocess.run([*command, str(each.folder / f"{each.cell}.template.json")], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_the_cdk_behaves_as_its_makers_recommend() -> None:
    recommended = ROOT / "node_modules/aws-cdk/lib/init-templates/.recommended-feature-flags.json"
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    assert json.loads(recommended.read_text()).items() <= context.items()


def test_the_app_writes_the_same_again(defaults: Synthesis, tmp_path: Path) -> None:
    again = run_app(FLAGS, tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "hourwheel.template.json").read_text() == defaults.text


@pytest.mark.parametrize(
    ("context", "sentence"),
    [
        ({"hourwheel:shards": "300"}, "hourwheel:shards is '300' and must be a whole number from 1 to 100"),
        (
            {"hourwheel:domain_name": "q.example.org"},
            "hourwheel:domain_name and hourwheel:certificate_arn go together: set both to have a name of your own, or"
            " neither",
        ),
    ],
)
def test_a_wrong_value_ends_the_app_with_one_sentence(
    tmp_path: Path, context: dict[str, object], sentence: str
) -> None:
    ended = run_app(context, tmp_path)
    assert ended.returncode == 1
    assert sentences(ended.stderr) == [sentence]
    assert not ended.stdout


ARN = "arn:aws:sqs:eu-west-1:111122223333:orders"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cell", "Orders"),
        ("cell", "no"),
        ("cell", "1st"),
        ("cell", "orders-"),
        ("cell", "o" * 31),
        ("cell", "or_ders"),
        ("retention_seconds", "59"),
        ("retention_seconds", "2592001"),
        ("retention_seconds", "3d"),
        ("bucket_minutes", "4"),
        ("bucket_minutes", "61"),
        ("bucket_minutes", "7.5"),
        ("shards", "0"),
        ("shards", "101"),
        ("shards", ""),
        ("inline_bytes", "1023"),
        ("warm_write_units", "3999"),
        ("warm_read_units", "warm"),
        ("customer_key", "mine"),
        ("bootstrap_key_arn", "alias/bootstrap"),
        ("pipeline_release", "emr-7.13.0"),
        ("access_log_class", "cheap"),
        ("runtime", "3.10"),
        ("table_alarms", ""),
        ("precise_timers", "soon"),
        ("retain", "maybe"),
        ("push", "2"),
        ("pipeline", "daily"),
        ("archive_minutes", "4"),
        ("archive_minutes", "241"),
        ("pipeline_hour", "24"),
        ("pipeline_hour", "noon"),
        ("pipeline_vcpus", "7"),
        ("memory_archive", "128"),
        ("dashboard", ""),
        ("reserve_concurrency", "none"),
        ("cell", "default"),
        ("push_targets", "*"),
        ("push_targets", ",".join(f"arn:aws:sqs:eu-west-1:111122223333:orders-{n}" for n in range(60))),
        ("push_targets", "orders"),
        ("push_targets", "https://example.org/hook"),
        ("push_targets", "http://example.org"),
        ("push_targets", "https://*"),
        ("push_targets", "https://*.org"),
        ("push_targets", "https://10.0.0.1"),
        ("push_targets", f"={ARN}"),
        ("push_targets", f"*orders={ARN}"),
        ("push_targets", f"orders={ARN}=x"),
        ("push_targets", "arn:aws:sqs:eu-west-1:111122223333:*"),
        ("push_targets", "arn:aws:sqs:*:111122223333:orders"),
        ("push_targets", "arn:aws:sqs:eu-west-1:*:orders"),
        ("push_targets", "arn:aws:s3:::orders"),
        ("push_targets", "arn:aws:events:eu-west-1:111122223333:rule/x"),
        ("push_targets", f"{ARN},,{ARN}?"),
        ("push_targets", f"{ARN} {ARN}"),
        ("throttle_rate", "0"),
        ("throttle_rate", "-1"),
        ("throttle_burst", "lots"),
        ("pull_rate", "0"),
        ("pull_burst", "many"),
        ("pull_concurrency", "-1"),
        ("max_wait_seconds", "21"),
        ("auto_create", "sometimes"),
        ("max_subjects", "-1"),
        ("max_groups", "many"),
        ("lambda_concurrency", "9"),
        ("domain_name", "https://queue.example.org"),
        ("domain_name", "localhost"),
        ("domain_name", "queue..example.org"),
        ("certificate_arn", "arn:aws:iam::111122223333:server-certificate/x"),
        ("memory_api", "128"),
        ("memory_sweep", "10241"),
        ("memory_wheel", "1 GB"),
        ("memory_push", "512MB"),
        ("log_days", "31"),
        ("log_days", "0"),
        ("alarm_email", "ops"),
        ("alarm_email", "ops@example"),
        ("alarm_email", "a@example.org,b@example.org"),
        ("alarm_oldest_seconds", "59"),
        ("alarm_dead_letters", "-1"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str) -> None:
    with pytest.raises(Wrong) as caught:
        Settings.read({f"{PREFIX}{name}": value})
    allowed = Settings.model_fields[name].description
    assert str(caught.value) == f"{PREFIX}{name} is {value!r} and must be {allowed}"


def test_what_is_no_setting_is_refused() -> None:
    with pytest.raises(Wrong) as caught:
        Settings.read({"hourwheel:shard": "1"})
    assert str(caught.value).startswith("hourwheel:shard is not a setting: there are access_log_class, ")


def test_context_of_others_is_unchanged() -> None:
    assert Settings.read({"aws:cdk:enable-path-metadata": True, "cli-telemetry": False}) == Settings()


def test_targets_without_push_are_refused() -> None:
    with pytest.raises(Wrong) as caught:
        Settings.read({"hourwheel:push": "false", "hourwheel:push_targets": ARN})
    assert str(caught.value).startswith("hourwheel:push_targets is set and hourwheel:push is false: ")


def test_targets_are_separated_by_commas_and_blanks_mean_nothing() -> None:
    read = Settings.read({"hourwheel:push_targets": f" {ARN} ,{ARN}-2,\n"})
    assert read.push_targets == (ARN, f"{ARN}-2")


def test_a_file_may_hold_numbers_lists_and_truth() -> None:
    read = Settings.read({"hourwheel:shards": 4, "hourwheel:retain": False, "hourwheel:push_targets": [ARN]})
    assert (read.shards, read.retain, read.push_targets) == (4, False, (ARN,))


def test_the_docs_tell_each_setting_and_its_default() -> None:
    text, _, _ = (ROOT / "docs/reference/settings.md").read_text().partition("## Outputs of the stack")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)
    defaults = {name: json.dumps(value) for name, value in Settings().model_dump().items()}
    words = {"null": "none", "[]": "none", "{}": "none"}
    assert dict(rows) == {name: words.get(value, value.strip('"')) for name, value in defaults.items()}
