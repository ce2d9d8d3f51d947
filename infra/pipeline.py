"""Defines the pipeline: an EMR Serverless application, its daily job, and the Glue database of the lake.

The application costs nothing while no job runs. It is in no VPC: a job calls S3, Glue and CloudWatch Logs alone, which
it reaches without one.
"""

import json

from aws_cdk import Aws, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_scheduler as scheduler
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.delay import Delay
from infra.encryption import Encryption
from infra.functions import ROOT, built, keep_days
from infra.lake import ARCHIVE, LAKE, LOGS, REPORTS, Lake
from infra.nag_suppressions import allow_below
from infra.names import function_name
from infra.settings import WORKER_GB, WORKER_VCPUS, Settings

PACKAGE = ROOT / "build" / "pipeline"
ENTRY = ROOT / "pipeline" / "emr.py"

PYTHON = "python3.11"
"""The Python for which ``pipeline/build.py`` packs."""

TABLES = ("messages", "pulls", "dispatches", "findings", "metrics")
"""The tables of the lake, by the names that the jobs use."""

_DISK_GB = 20  # for each worker, the smallest disk of EMR Serverless: it costs nothing more
_HEAP_GB = 10
"""The share of a worker's memory for the JVM: the rest is for Python and Arrow."""

_PARTITIONS_PER_VCPU = 4  # so that cores whose partitions are small take up others

_DAYS = 40
"""The days that a job reads: the longest retention is 30."""

_IDLE_MINUTES = 5
_JOB_MINUTES = 360  # a hung job ends long before the next day's, and raises an alarm
_START_SECONDS = 3_600  # then the call of Scheduler goes to ``FailuresQueue``, which raises an alarm


class Pipeline(Construct):
    def __init__(
        self,
        scope: Construct,
        name: str,
        settings: Settings,
        *,
        lake: Lake,
        delay: Delay,
        failures: sqs.Queue,
        encryption: Encryption,
    ) -> None:
        super().__init__(scope, name)
        self._settings, self._bucket, self._encryption = settings, lake.bucket, encryption
        self._database_name = settings.cell.replace("-", "_")
        self._application = self._make_application()
        self._entry, self._packages = self._package()
        self._role = self._job_role()
        self._database()
        schedule = self._daily(delay, failures)
        self._report_failures(failures)
        for key, value in (
            ("PipelineApplicationId", self._application.attr_application_id),
            ("PipelineSchedule", f"{delay.group}/{schedule.ref}"),
            ("ArchiveFunction", function_name(settings.cell, "archive")),
            ("PipelineRoleArn", self._role.role_arn),
            ("LakeDatabase", self._database_name),
        ):
            CfnOutput(self, key, value=value).override_logical_id(key)

    def _make_application(self) -> emr.CfnApplication:
        workers = self._settings.pipeline_vcpus // WORKER_VCPUS
        return emr.CfnApplication(
            self,
            "Application",
            name=self._settings.cell,
            release_label=self._settings.pipeline_release,
            type="SPARK",
            architecture="ARM64",
            auto_start_configuration=emr.CfnApplication.AutoStartConfigurationProperty(enabled=True),
            auto_stop_configuration=emr.CfnApplication.AutoStopConfigurationProperty(
                enabled=True, idle_timeout_minutes=_IDLE_MINUTES
            ),
            maximum_capacity=emr.CfnApplication.MaximumAllowedResourcesProperty(
                cpu=f"{workers * WORKER_VCPUS} vCPU",
                memory=f"{workers * WORKER_GB} GB",
                disk=f"{workers * _DISK_GB} GB",
            ),
        )

    def _package(self) -> tuple[assets.Asset, dict[str, assets.Asset]]:
        """Returns the program of a job, and the archives that Spark unpacks beside each process, by the names of their
        folders there."""
        paths = {name: PACKAGE / f"{name}.tgz" for name in ("hourwheel", "dependencies")}
        archives = {
            name: assets.Asset(self, name.capitalize(), path=str(built(path, "make pipeline-package")))
            for name, path in paths.items()
        }
        return assets.Asset(self, "Entry", path=str(ENTRY)), archives

    def _job_role(self) -> iam.Role:
        conditions = {
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID, "aws:SourceArn": self._application.attr_arn}
        }
        principal = iam.ServicePrincipal("emr-serverless.amazonaws.com", conditions=conditions)
        role = iam.Role(self, "JobRole", assumed_by=principal)
        folders = {
            ARCHIVE: ["s3:GetObject"],
            # Files of Iceberg replace each other, and files that no table names are removed.
            LAKE: ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"],
            REPORTS: ["s3:AbortMultipartUpload", "s3:PutObject"],
            LOGS: ["s3:PutObject"],
        }
        for folder, actions in folders.items():
            allow_below(
                role,
                actions,
                self._bucket.arn_for_objects(f"{folder}*"),
                "Keys of the lake are made at run time; this is their folder.",
            )
        # On the whole bucket: a condition on the prefix would never hold for a GET of a missing object.
        role.add_to_policy(iam.PolicyStatement(actions=["s3:ListBucket"], resources=[self._bucket.bucket_arn]))
        packed = [self._entry, *self._packages.values()]
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["s3:GetObject"],
                resources=[asset.bucket.arn_for_objects(asset.s3_object_key) for asset in packed],
            )
        )
        self._allow_catalog(role)
        self._allow_metrics(role)
        self._encryption.allow(role)
        if self._settings.bootstrap_key_arn is not None:
            # The package is in the bucket of the CDK's bootstrap, which may have a key of its own.
            resources = [self._settings.bootstrap_key_arn]
            role.add_to_policy(iam.PolicyStatement(actions=["kms:Decrypt"], resources=resources))
        return role

    def _allow_catalog(self, role: iam.Role) -> None:
        def arn(resource: str, name: str | None = None) -> str:
            return Stack.of(self).format_arn(service="glue", resource=resource, resource_name=name)

        above = [arn("catalog"), arn("database", self._database_name)]
        tables = [arn("table", f"{self._database_name}/{table}") for table in TABLES]
        role.add_to_policy(iam.PolicyStatement(actions=["glue:GetDatabase"], resources=above))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["glue:CreateTable", "glue:GetTable", "glue:GetTables", "glue:UpdateTable"],
                resources=[*above, *tables],
            )
        )

    def _allow_metrics(self, role: iam.Role) -> None:
        """Creates the log group from whose lines CloudWatch makes metrics, and lets the role write there. CloudWatch
        makes no metrics from the class Infrequent Access."""
        log_group = logs.LogGroup(
            self,
            "Metrics",
            log_group_name=f"/hourwheel/{self._settings.cell}/jobs",
            removal_policy=RemovalPolicy.DESTROY,
            encryption_key=self._encryption.key,
        )
        keep_days(log_group, self._settings.log_days)
        actions = ["logs:CreateLogStream", "logs:PutLogEvents"]
        role.add_to_policy(iam.PolicyStatement(actions=actions, resources=[log_group.log_group_arn]))

    def _database(self) -> None:
        glue.CfnDatabase(
            self,
            "Database",
            catalog_id=Aws.ACCOUNT_ID,
            database_input=glue.CfnDatabase.DatabaseInputProperty(
                name=self._database_name, description=f"The lake of the Hourwheel cell {self._settings.cell}"
            ),
        )

    def _daily(self, delay: Delay, failures: sqs.Queue) -> scheduler.CfnSchedule:
        role = delay.scheduler_role(self, "JobCaller")
        role.add_to_policy(
            iam.PolicyStatement(actions=["emr-serverless:StartJobRun"], resources=[self._application.attr_arn])
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self._role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
            )
        )
        role.add_to_policy(iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[failures.queue_arn]))
        self._encryption.allow(role)
        schedule = scheduler.CfnSchedule(
            self,
            "Daily",
            group_name=delay.group_ref,
            schedule_expression=f"cron(0 {self._settings.pipeline_hour} * * ? *)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=f"arn:{Aws.PARTITION}:scheduler:::aws-sdk:emrserverless:startJobRun",
                role_arn=role.role_arn,
                input=json.dumps(self._job(), separators=(",", ":")),
                retry_policy=scheduler.CfnSchedule.RetryPolicyProperty(
                    maximum_event_age_in_seconds=_START_SECONDS, maximum_retry_attempts=10
                ),
                dead_letter_config=scheduler.CfnSchedule.DeadLetterConfigProperty(arn=failures.queue_arn),
            ),
        )
        schedule.node.add_dependency(role)  # with its policy: otherwise the first calls are refused
        return schedule

    def _job(self) -> dict[str, object]:
        """Returns the input of ``StartJobRun`` in Scheduler's spelling. A retry of Scheduler has the same token."""
        options = {
            "archive": self._folder(ARCHIVE),
            "lake": self._folder(LAKE),
            "output": self._folder(REPORTS),
            "namespace": self._database_name,
            "region": Aws.REGION,
            "days": _DAYS,
            "cell": self._settings.cell,
        }
        return {
            "ApplicationId": self._application.attr_application_id,
            "ClientToken": "<aws.scheduler.execution-id>",
            "ExecutionRoleArn": self._role.role_arn,
            "Name": "daily",
            "ExecutionTimeoutMinutes": _JOB_MINUTES,
            "JobDriver": {
                "SparkSubmit": {
                    "EntryPoint": self._entry.s3_object_url,
                    "EntryPointArguments": ["daily", *(f"--{name}={value}" for name, value in options.items())],
                    "SparkSubmitParameters": " ".join(f"--conf {key}={value}" for key, value in self._spark().items()),
                }
            },
            "ConfigurationOverrides": {
                "MonitoringConfiguration": {"S3MonitoringConfiguration": {"LogUri": f"{self._folder(LOGS)}/"}}
            },
        }

    def _spark(self) -> dict[str, str]:
        """Returns the settings of Spark. Relative paths start at the working folder of each process."""
        executors = self._settings.pipeline_vcpus // WORKER_VCPUS - 1
        path = ":".join(f"./{name}" for name in self._packages)
        python = {"PYSPARK_PYTHON": PYTHON, "PYSPARK_DRIVER_PYTHON": PYTHON, "PYTHONPATH": path}
        memory = {"memory": f"{_HEAP_GB}g", "memoryOverhead": f"{WORKER_GB - _HEAP_GB}g", "cores": str(WORKER_VCPUS)}
        return {
            "spark.archives": ",".join(f"{package.s3_object_url}#{name}" for name, package in self._packages.items()),
            **{f"spark.emr-serverless.driverEnv.{name}": value for name, value in python.items()},
            **{f"spark.executorEnv.{name}": value for name, value in python.items()},
            **{
                f"spark.{process}.{name}": value for process in ("driver", "executor") for name, value in memory.items()
            },
            # Otherwise Spark would look up its own databases in Glue.
            "spark.sql.catalogImplementation": "in-memory",
            # Each executor is billed for at least a minute, and EMR starts three by default: most days need one.
            "spark.dynamicAllocation.initialExecutors": "1",
            "spark.dynamicAllocation.maxExecutors": str(executors),
            # Spark joins small ones. Its default of 200 is too many for a small lake, too few for a large one.
            "spark.sql.shuffle.partitions": str(_PARTITIONS_PER_VCPU * WORKER_VCPUS * executors),
        }

    def _folder(self, prefix: str) -> str:
        return f"s3://{self._bucket.bucket_name}/{prefix.rstrip('/')}"

    def _report_failures(self, failures: sqs.Queue) -> None:
        """Makes EventBridge send runs that failed or took too long to the queue of failures."""
        events.Rule(
            self,
            "Failed",
            event_pattern=events.EventPattern(
                source=["aws.emr-serverless"],
                detail_type=["EMR Serverless Job Run State Change"],
                detail={
                    "applicationId": [self._application.attr_application_id],
                    "state": ["FAILED", "CANCELLED"],
                },
            ),
            targets=[targets.SqsQueue(failures)],
        )
