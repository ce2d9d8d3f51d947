import json
import re
import runpy
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from hourwheel_pipeline.outcomes.metrics_upload import log_group
from infra import pipeline
from infra.settings import Wrong
from pipeline import build
from tests.infra.synthesis import ACCOUNT, REGION, Synthesis, synthesised

JOBS = Path(__file__).parents[2] / "pipeline/hourwheel_pipeline"


class Jobs:
    """Returns the resources of the pipeline."""

    def __init__(self, synthesis: Synthesis) -> None:
        self.synthesis = synthesis
        (self.application,) = synthesis.properties("EMRServerless::Application")
        (self.role,) = (key for key in synthesis.resources("IAM::Role") if "JobRole" in key)
        (self.caller,) = (key for key in synthesis.resources("IAM::Role") if "JobCaller" in key)
        (self.lake,) = (key for key in synthesis.resources("S3::Bucket") if "Lake" in key)
        self.failures = synthesis.failures

    @cached_property
    def schedule(self) -> dict[str, Any]:
        schedules = self.synthesis.properties("Scheduler::Schedule")
        return next(one for one in schedules if "emrserverless" in one["Target"]["Arn"])

    @cached_property
    def asked(self) -> Any:
        """Returns the input of ``StartJobRun`` in the spelling of its API."""
        return uncapitalised(json.loads(self.schedule["Target"]["Input"]))

    @cached_property
    def spark(self) -> dict[str, str]:
        text = self.asked["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
        return dict(part.split("=", 1) for part in text.removeprefix("--conf ").split(" --conf "))


def uncapitalised(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: uncapitalised(part) for key, part in value.items()}
    return value


@pytest.fixture(scope="module")
def jobs(everything: Synthesis) -> Jobs:
    return Jobs(everything)


def test_without_it_there_is_nothing_of_it_but_the_bucket(defaults: Synthesis, not_much: Synthesis) -> None:
    for synthesis in (defaults, not_much):
        kinds = {found["Type"].split("::")[1] for found in synthesis.template["Resources"].values()}
        assert not kinds & {"EMRServerless", "Glue", "Events"}
        # The route of the call that tells how far the archive is answers without a pipeline too.
        text = synthesis.text.lower().replace("httpgetv1archive", "").replace("get /v1/archive", "")
        assert "archive" not in text


def test_the_bucket_stays_the_same_when_the_pipeline_is_switched(defaults: Synthesis, everything: Synthesis) -> None:
    # With another id CloudFormation would create another bucket.
    (without, with_it) = (
        {name for name in synthesis.resources("S3::Bucket") if name.startswith("Lake")}
        for synthesis in (defaults, everything)
    )
    assert without == with_it
    assert len(with_it) == 1


def test_the_application_stops_by_itself_and_grows_no_further_than_set(jobs: Jobs) -> None:
    application = jobs.application
    assert (application["ReleaseLabel"], application["Type"]) == ("emr-spark-8.1.0", "SPARK")
    assert application["Architecture"] == "ARM64"
    assert application["AutoStartConfiguration"] == {"Enabled": True}
    assert application["AutoStopConfiguration"] == {"Enabled": True, "IdleTimeoutMinutes": 5}
    assert application["MaximumCapacity"] == {"Cpu": "32 vCPU", "Memory": "128 GB", "Disk": "160 GB"}
    assert "InitialCapacity" not in application
    assert "NetworkConfiguration" not in application


def test_the_job_is_started_each_day_at_the_hour_that_is_set(jobs: Jobs) -> None:
    schedule = jobs.schedule
    assert schedule["ScheduleExpression"] == "cron(0 4 * * ? *)"
    assert schedule["Target"]["Arn"] == "arn:aws:scheduler:::aws-sdk:emrserverless:startJobRun"
    assert schedule["Target"]["RoleArn"].endswith(jobs.caller)
    assert schedule["Target"]["DeadLetterConfig"]["Arn"].endswith(jobs.failures)


def test_emr_takes_what_scheduler_sends_it(jobs: Jobs) -> None:
    model = botocore.session.get_session().get_service_model("emr-serverless")
    report = ParamValidator().validate(jobs.asked, model.operation_model("StartJobRun").input_shape)
    assert not report.has_errors(), report.generate_report()
    assert len(json.dumps(jobs.asked["jobDriver"])) < 10_000
    assert jobs.asked["executionRoleArn"] == f"arn:aws:iam::{ACCOUNT}:role/{jobs.role}"
    # The token is another one each day, and equal in a retry of Scheduler.
    assert jobs.asked["clientToken"] == "<aws.scheduler.execution-id>"


def test_the_job_is_told_of_this_cell(jobs: Jobs) -> None:
    bucket = f"s3://{jobs.lake}"
    assert jobs.asked["jobDriver"]["sparkSubmit"]["entryPointArguments"] == [
        "daily",
        f"--archive={bucket}/archive",
        f"--lake={bucket}/lake",
        f"--output={bucket}/reports",
        "--namespace=orders_eu",
        f"--region={REGION}",
        "--days=40",
        "--cell=orders-eu",
    ]
    source = "".join(path.read_text() for path in JOBS.rglob("*.py"))
    for argument in jobs.asked["jobDriver"]["sparkSubmit"]["entryPointArguments"][1:-1]:
        name = argument.removeprefix("--").partition("=")[0]
        assert re.search(rf"^    {name}: (str|Location|PositiveInt)", source, re.MULTILINE), (
            f"no job has an option {name}"
        )
    (database,) = jobs.synthesis.properties("Glue::Database")
    assert database["DatabaseInput"]["Name"] == "orders_eu"
    logs = jobs.asked["configurationOverrides"]["monitoringConfiguration"]["s3MonitoringConfiguration"]
    assert logs == {"logUri": f"{bucket}/logs/"}


def test_each_process_finds_the_package_beside_it(jobs: Jobs) -> None:
    spark, assets = jobs.spark, f"s3://cdk-hnb659fds-assets-{ACCOUNT}-{REGION}/"
    archives = [one.split("#") for one in spark["spark.archives"].split(",")]
    assert [name for _, name in archives] == ["hourwheel", "dependencies"]
    assert all(address.startswith(assets) and address.endswith(".tgz") for address, _ in archives)
    assert jobs.asked["jobDriver"]["sparkSubmit"]["entryPoint"].startswith(assets)
    for process in ("emr-serverless.driverEnv", "executorEnv"):
        assert spark[f"spark.{process}.PYTHONPATH"] == "./hourwheel:./dependencies"
        assert spark[f"spark.{process}.PYSPARK_PYTHON"] == "python3.11"


def test_spark_itself_asks_nothing_of_glue(jobs: Jobs) -> None:
    assert jobs.spark["spark.sql.catalogImplementation"] == "in-memory"


def test_workers_fit_into_the_capacity(jobs: Jobs) -> None:
    spark = jobs.spark
    for process in ("driver", "executor"):
        memory = [int(spark[f"spark.{process}.{name}"].removesuffix("g")) for name in ("memory", "memoryOverhead")]
        assert (sum(memory), spark[f"spark.{process}.cores"]) == (16, "4")
    assert spark["spark.dynamicAllocation.maxExecutors"] == "7"  # with the driver: 32 vCPUs
    assert spark["spark.sql.shuffle.partitions"] == "112"


def test_a_job_begins_with_one_executor_and_not_with_three(jobs: Jobs) -> None:
    assert jobs.spark["spark.dynamicAllocation.initialExecutors"] == "1"


def test_another_interpreter_than_the_package_is_for_ends_the_job_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert f"python{build.PYTHON}" == pipeline.PYTHON
    monkeypatch.setattr(sys, "version_info", (3, 9, 20))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(pipeline.ENTRY), run_name="__main__")
    assert str(ended.value).startswith(
        f"the package of the jobs is for Python {build.PYTHON}, and this release runs 3.9: "
    )


def test_the_interpreter_of_the_package_runs_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, packed = pipeline.ENTRY.read_text(), f"\nPYTHON = ({build.PYTHON.replace('.', ', ')})\n"
    assert packed in text
    entry = tmp_path / "emr.py"
    entry.write_text(text.replace(packed, f"\nPYTHON = {tuple(sys.version_info[:2])}\n"))
    monkeypatch.setattr(sys, "argv", ["emr.py", "compact"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(entry), run_name="__main__")
    assert ended.value.code == 2, "the job itself says which options it lacks"


def test_the_job_may_do_what_it_does_and_nothing_else(jobs: Jobs) -> None:
    aws, bucket = f"{REGION}:{ACCOUNT}", f"arn:aws:s3:::{jobs.lake}"
    assets = f"arn:aws:s3:::cdk-hnb659fds-assets-{ACCOUNT}-{REGION}/"
    found = {
        (action, resource)
        for statement in jobs.synthesis.statements(jobs.role)
        for action in statement["Action"]
        for resource in statement["Resource"]
        if not resource.startswith(assets)
    }
    glue = [f"arn:aws:glue:{aws}:catalog", f"arn:aws:glue:{aws}:database/orders_eu"]
    tables = [f"arn:aws:glue:{aws}:table/orders_eu/{table}" for table in pipeline.TABLES]
    assert found == {
        ("s3:GetObject", f"{bucket}/archive/*"),
        *((f"s3:{verb}Object", f"{bucket}/lake/*") for verb in ("Get", "Put", "Delete")),
        ("s3:AbortMultipartUpload", f"{bucket}/lake/*"),
        *((f"s3:{verb}", f"{bucket}/reports/*") for verb in ("PutObject", "AbortMultipartUpload")),
        ("s3:PutObject", f"{bucket}/logs/*"),
        ("s3:ListBucket", bucket),
        *(("glue:GetDatabase", resource) for resource in glue),
        *(
            (f"glue:{verb}", resource)
            for verb in ("CreateTable", "GetTable", "GetTables", "UpdateTable")
            for resource in (*glue, *tables)
        ),
        *(
            (f"logs:{verb}", f"arn:aws:logs:{aws}:{log_group('orders-eu')}")
            for verb in ("CreateLogStream", "PutLogEvents")
        ),
        *jobs.synthesis.key_uses(),
        ("kms:Decrypt", jobs.synthesis.settings["bootstrap_key_arn"]),
    }


def test_metrics_go_to_a_log_that_cloudwatch_turns_into_metrics(jobs: Jobs) -> None:
    groups = {group["LogGroupName"]: group for group in jobs.synthesis.properties("Logs::LogGroup")}
    found = groups[log_group("orders-eu")]
    assert found["RetentionInDays"] == 7
    assert found.get("LogGroupClass", "STANDARD") == "STANDARD", "others extract no metrics"


def test_of_the_assets_the_job_reads_its_own(jobs: Jobs) -> None:
    spark = jobs.asked["jobDriver"]["sparkSubmit"]
    named = set(re.findall(r"s3://([^#, ]+\.(?:tgz|py))", f"{spark['entryPoint']} {spark['sparkSubmitParameters']}"))
    allowed = {
        resource.removeprefix("arn:aws:s3:::")
        for statement in jobs.synthesis.statements(jobs.role)
        for resource in statement["Resource"]
        if "assets" in resource
    }
    assert allowed == named
    assert len(named) == 3


def test_only_this_application_takes_the_role_of_the_job(jobs: Jobs) -> None:
    role = jobs.synthesis.resolved(jobs.synthesis.resources("IAM::Role")[jobs.role]["Properties"])
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "emr-serverless.amazonaws.com"}
    (application,) = jobs.synthesis.resources("EMRServerless::Application")
    arn = f"arn:aws:emrserverless:{REGION}:{ACCOUNT}:{application}"
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT, "aws:SourceArn": arn}}


def test_scheduler_passes_the_role_of_the_job_to_emr_alone(jobs: Jobs) -> None:
    (passing,) = (one for one in jobs.synthesis.statements(jobs.caller) if one["Action"] == ["iam:PassRole"])
    assert passing["Resource"] == [f"arn:aws:iam::{ACCOUNT}:role/{jobs.role}"]
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}}


def test_runs_that_fail_end_in_the_queue_of_failures(jobs: Jobs) -> None:
    (rule,) = jobs.synthesis.properties("Events::Rule")
    assert rule["EventPattern"] == {
        "source": ["aws.emr-serverless"],
        "detail-type": ["EMR Serverless Job Run State Change"],
        "detail": {"applicationId": [jobs.asked["applicationId"]], "state": ["FAILED", "CANCELLED"]},
    }
    (target,) = rule["Targets"]
    assert target["Arn"].endswith(jobs.failures)
    policies = jobs.synthesis.properties("SQS::QueuePolicy")
    (policy,) = (found for found in policies if jobs.failures in str(found["Queues"]))
    (allowed,) = (one for one in policy["PolicyDocument"]["Statement"] if one["Effect"] == "Allow")
    assert allowed["Principal"] == {"Service": "events.amazonaws.com"}
    assert allowed["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


def test_the_command_line_is_told_where_to_find_it(jobs: Jobs) -> None:
    outputs = {
        key: jobs.synthesis.resolved(found["Value"]) for key, found in jobs.synthesis.template["Outputs"].items()
    }
    (schedule,) = (key for key in jobs.synthesis.resources("Scheduler::Schedule") if "Daily" in key)
    assert outputs["PipelineApplicationId"] == jobs.asked["applicationId"]
    assert outputs["PipelineSchedule"] == f"orders-eu/{schedule}"
    assert outputs["ArchiveFunction"] == "orders-eu-archive"
    assert outputs["LakeDatabase"] == "orders_eu"
    assert outputs["PipelineRoleArn"] == jobs.asked["executionRoleArn"]


def test_the_tables_that_the_job_may_use_are_those_of_the_lake() -> None:
    named = set()
    for path in JOBS.rglob("*.py"):
        named |= set(re.findall(r'^(?:TABLE|MESSAGES|PULLS|DISPATCHES) = "(\w+)"', path.read_text(), re.MULTILINE))
    assert named <= set(pipeline.TABLES)
    assert {"findings"} <= named


def test_a_package_that_was_not_made_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "PACKAGE", pipeline.ROOT / "build/nowhere")
    with pytest.raises(Wrong, match=r"^build/nowhere/hourwheel\.tgz is not there: run `make pipeline-package` first$"):
        synthesised({"pipeline": "true"}, tmp_path)
