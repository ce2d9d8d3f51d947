"""Defines the functions: arm64, two layers, a role and a log group each.

Each role has the permissions of ``infra.permissions``, and may write the log of its function.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import permissions
from infra.cells import Cells
from infra.delay import Delay
from infra.encryption import Encryption
from infra.lake import Lake
from infra.nag_suppressions import acknowledge, allow_below
from infra.names import function_arn, function_name, wakeup_queues_arn
from infra.settings import Settings, Wrong
from infra.storage import Storage
from infra.tables import Tables
from infra.timers import TimerQueue

ROOT = Path(__file__).parents[1]
LAYERS = ROOT / "build" / "layers"


@dataclass(frozen=True)
class Task:
    """A function that a clock, a stream or another function starts, and no request. ``event_seconds``: the time for
    which an event may wait. ``loops``: the function starts itself, which Lambda would stop after 16 times; its handler
    makes sure that the loop ends. ``retries``: how often Lambda repeats an event that failed, after one minute and
    after two more."""

    event_seconds: int
    loops: bool = False
    retries: int = 0


@dataclass(frozen=True)
class Kind:
    """The kind of a function. ``memory``: the setting that gives its memory. ``seconds``: its time-out."""

    memory: str
    seconds: int
    task: Task | None = None


_HTTP = Kind("memory_api", 29)  # API Gateway waits 30 s for an answer
KINDS: Mapping[str, Kind] = {
    "produce": _HTTP,
    "pull": _HTTP,
    "ack": _HTTP,
    "meta": _HTTP,
    # A run that takes longer than a minute does not hold up the next one.
    "delayed": Kind("memory_sweep", 120, Task(60)),
    # A sweep may take longer than a minute: the next ones wait.
    "sweep": Kind("memory_sweep", 300, Task(300)),
    # The sweeper starts wheels and pushes that should run and do not. Their events wait for five minutes, so that none
    # fails while the executions of the account are used up.
    # A wheel that could not order its next start is repeated: the sweeper sees only the starts of open buckets.
    "wheel": Kind("memory_wheel", 900, Task(300, loops=True, retries=2)),
    "push": Kind("memory_push", 900, Task(300, loops=True)),
    # The next run continues where this one stopped.
    "archive": Kind("memory_archive", 900, Task(900)),
}

RESERVED: Mapping[str, int] = {"delayed": 2, "sweep": 1, "archive": 1}
"""The executions that ``reserve_concurrency`` keeps, for the sweep one for each share. A run of ``delayed`` that takes
longer than a minute must not hold up the next one."""

_MAKERS = frozenset({"produce", "pull", "meta"})
"""Functions that create subjects and groups."""


class Functions(Construct):
    """The functions of a cell. ``by_name``: the functions, without push and archive if they are switched off.
    ``failures``: the queue to which Lambda sends events that could start no function, or that made it fail.
    ``timers``: the queue of precise timers; None without them."""

    def __init__(
        self,
        scope: Construct,
        name: str,
        settings: Settings,
        *,
        tables: Tables,
        storage: Storage,
        cells: Cells,
        lake: Lake,
        delay: Delay,
        encryption: Encryption,
    ) -> None:
        super().__init__(scope, name)
        self._settings, self._tables, self._storage, self._lake, self._delay = settings, tables, storage, lake, delay
        self._cells, self._encryption = cells, encryption
        self._wheel_arn, self._push_arn, self._sweep_arn = (
            function_arn(self, settings.cell, function) for function in ("wheel", "push", "sweep")
        )
        self.failures = self._failures()
        self.timers = (
            TimerQueue(self, "Timers", failures=self.failures, encryption=encryption)
            if settings.precise_timers
            else None
        )
        # The layers have byte code, which is for one version of Python.
        version = layers_runtime()
        if settings.runtime not in (None, version):
            raise Wrong(
                f"the layers are for Python {version}, and hourwheel:runtime is {settings.runtime}: `make layers`"
            )
        self._runtime = lambda_.Runtime(f"python{version}", lambda_.RuntimeFamily.PYTHON)
        self._layers = [self._layer("dependencies"), self._layer("hourwheel")]
        self.log_groups: dict[str, logs.LogGroup] = {}
        left_out = {name for name, wanted in (("push", settings.push), ("archive", settings.pipeline)) if not wanted}
        self.by_name = {
            function: self._function(function, kind) for function, kind in KINDS.items() if function not in left_out
        }
        if self.timers is not None:
            self.timers.start(self.by_name["wheel"], self.by_name["delayed"])

    def _function(self, name: str, kind: Kind) -> lambda_.Function:
        scope = Construct(self, name.capitalize())
        full_name = function_name(self._settings.cell, name)
        self.log_groups[name] = log_group = logs.LogGroup(
            scope,
            "Log",
            log_group_name=f"/aws/lambda/{full_name}",
            removal_policy=RemovalPolicy.DESTROY,
            encryption_key=self._encryption.key,
        )
        keep_days(log_group, self._settings.log_days)
        reserved = reserved_executions(self._settings).get(name)
        if name == "pull" and self._settings.pull_concurrency:
            # A waiting pull takes an execution: with a reservation, consumers cannot take those of other functions.
            reserved = self._settings.pull_concurrency
        function = lambda_.Function(
            scope,
            "Function",
            function_name=full_name,
            runtime=self._runtime,
            architecture=lambda_.Architecture.ARM_64,
            handler="handler.handler",
            code=lambda_.Code.from_asset(str(ROOT / "functions" / name), exclude=["__pycache__"]),
            layers=self._layers,
            memory_size=getattr(self._settings, kind.memory),
            timeout=Duration.seconds(kind.seconds),
            environment=self._environment(name),
            environment_encryption=self._encryption.key,
            role=self._role(scope, name, kind, log_group),
            log_group=log_group,
            # Lines of Lambda's own at the start and end of each call would cost more than the calls themselves.
            logging_format=lambda_.LoggingFormat.JSON,
            system_log_level_v2=lambda_.SystemLogLevel.WARN,
            recursive_loop=lambda_.RecursiveLoop.ALLOW if kind.task and kind.task.loops else None,
            reserved_concurrent_executions=reserved,
        )
        acknowledge(
            function,
            "L1",
            "The functions run on the Python for which the layers hold byte code, not on the newest that Lambda has.",
        )
        if kind.task:
            self._give_up(scope, function, kind.task)
        return function

    def _give_up(self, scope: Construct, function: lambda_.Function, task: Task) -> None:
        """Makes Lambda send events that failed to the queue of failures, after the retries of the task."""
        config = lambda_.CfnEventInvokeConfig(
            scope,
            "AsyncInvocations",
            function_name=function.function_name,
            qualifier="$LATEST",
            maximum_event_age_in_seconds=task.event_seconds,
            maximum_retry_attempts=task.retries,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=self.failures.queue_arn)
            ),
        )
        assert function.role is not None
        config.node.add_dependency(function.role)  # Lambda checks that the role may send there

    def _environment(self, name: str) -> dict[str, str]:
        """Returns the variables that ``hourwheel.aws.services.Environment`` reads."""
        settings = self._settings
        variables = {
            "TABLE_PREFIX": settings.cell,
            "BUCKET": self._storage.bucket.bucket_name,
            "WHEEL_FUNCTION": self._wheel_arn,
            "TIMER_GROUP": self._delay.group,
            "TIMER_ROLE": self._delay.role.role_arn,
            "BUCKET_MINUTES": str(settings.bucket_minutes),
            "SHARDS": str(settings.shards),
            "CELL": settings.cell,
            "RETENTION_SECONDS": str(settings.retention_seconds),
            "INLINE_BYTES": str(settings.inline_bytes),
        }
        if self.timers is not None and name in permissions.ORDERS_WHEELS:
            variables["TIMER_QUEUE"] = self.timers.url
        variables |= self._called_functions(name)
        if settings.push and name in {"meta", "push"}:
            variables["PUSH_TARGETS"] = ",".join(settings.push_targets) or ","  # webhooks need no entry
        if settings.wake and name in permissions.WAKEUP_ACTIONS:
            variables["WAKE"] = "true"
        if name == "pull":
            variables["MAX_WAIT_SECONDS"] = str(settings.max_wait_seconds)
            variables |= self._wakeup_key()
        if name in _MAKERS:
            variables["AUTO_CREATE"] = str(settings.auto_create).lower()
            variables["MAX_SUBJECTS"] = str(settings.max_subjects)
            variables["MAX_GROUPS"] = str(settings.max_groups)
        if settings.pipeline:
            variables["ARCHIVE"] = "true"
        if settings.pipeline and name in permissions.LAKE_ACTIONS:
            variables["LAKE_BUCKET"] = self._lake.bucket.bucket_name
        if settings.cells:
            variables["CELLS"] = self._cells.variable()
        return {f"HOURWHEEL_{key}": value for key, value in variables.items()}

    def _wakeup_key(self) -> dict[str, str]:
        """Returns the variable that names the key of new wake-up queues, if the customer has one."""
        key = self._encryption.key
        return {} if key is None or not self._settings.wake else {"WAKEUP_KEY": key.key_arn}

    def _called_functions(self, name: str) -> dict[str, str]:
        """Returns the variables that name the functions which this one starts, without the wheel."""
        variables = {"SWEEP_FUNCTION": self._sweep_arn} if name == "delayed" else {}
        if name in {"delayed", "sweep"}:
            variables["SWEEP_SHARES"] = str(self._settings.sweep_shares)
        if self._settings.push and name in permissions.CALLS_PUSH:
            variables["PUSH_FUNCTION"] = self._push_arn
        return variables

    def _role(self, scope: Construct, name: str, kind: Kind, log_group: logs.LogGroup) -> iam.Role:
        role = iam.Role(scope, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        # The ARN of a log group names its streams as well.
        _allow(role, ["logs:CreateLogStream", "logs:PutLogEvents"], [log_group.log_group_arn])
        quota = permissions.TABLE_ACTIONS_WITH_QUOTA.get(name, {}) if self._settings.max_subjects else {}
        for table, verbs in (*permissions.TABLE_ACTIONS[name].items(), *quota.items()):
            _allow(role, [f"dynamodb:{verb}" for verb in verbs], [self._tables.by_name[table].table_arn])
        self._allow_objects(role, name, permissions.OBJECT_ACTIONS, self._storage.bucket)
        if self._settings.pipeline:
            self._allow_objects(role, name, permissions.LAKE_ACTIONS, self._lake.bucket)
        if self._cells.by_name:
            self._allow_cells(role, name)
        if name in permissions.ORDERS_WHEELS:
            self._allow_wheels(role)
        if name == "delayed":
            _allow(role, ["lambda:InvokeFunction"], [self._sweep_arn])
        if self._settings.push and name in permissions.CALLS_PUSH:
            _allow(role, ["lambda:InvokeFunction"], [self._push_arn])
        if self._settings.wake and name in permissions.WAKEUP_ACTIONS:
            allow_below(
                role,
                [f"sqs:{verb}" for verb in permissions.WAKEUP_ACTIONS[name]],
                wakeup_queues_arn(self, self._settings.cell),
                "The wake-up queues of groups are made at run time; these are the queues of this cell alone.",
            )
        if kind.task:
            _allow(role, ["sqs:SendMessage"], [self.failures.queue_arn])
        self._encryption.allow(role)
        return role

    def _allow_cells(self, role: iam.Role, name: str) -> None:
        """Gives a role the permissions of its function in the other cells, and those in the home cell that only
        deployments with other cells need."""
        for table, verbs in permissions.HOME_ACTIONS_WITH_CELLS.get(name, {}).items():
            _allow(role, [f"dynamodb:{verb}" for verb in verbs], [self._tables.by_name[table].table_arn])
        for cell in self._cells.by_name.values():
            for table, verbs in permissions.CELL_TABLE_ACTIONS[name].items():
                _allow(role, [f"dynamodb:{verb}" for verb in verbs], [cell.tables.by_name[table].table_arn])
            self._allow_objects(role, name, permissions.CELL_OBJECT_ACTIONS, cell.storage.bucket)

    def _allow_objects(self, role: iam.Role, name: str, actions: permissions.Verbs, bucket: s3.Bucket) -> None:
        folders = actions.get(name, {})
        for folder, verbs in folders.items():
            allow_below(
                role,
                [f"s3:{verb}" for verb in verbs],
                bucket.arn_for_objects(f"{folder}*"),
                "The keys of large batches are made at run time; this is their folder.",
            )
        if permissions.lists(folders):
            _allow(role, ["s3:ListBucket"], [bucket.bucket_arn])

    def _allow_wheels(self, role: iam.Role) -> None:
        """Allows a role to start a wheel, and to create schedules that start it."""
        _allow(role, ["lambda:InvokeFunction"], [self._wheel_arn])
        if self.timers is not None:
            self.timers.allow(role)
        allow_below(
            role,
            ["scheduler:CreateSchedule"],
            self._delay.schedules_arn,
            "The schedules that start wheels are made at run time; this is the group of this cell alone.",
        )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self._delay.role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            )
        )

    def _failures(self) -> sqs.Queue:
        key = self._encryption.key
        queue = sqs.Queue(
            self,
            "Failures",
            encryption=sqs.QueueEncryption.SQS_MANAGED if key is None else sqs.QueueEncryption.KMS,
            encryption_master_key=key,
            enforce_ssl=True,
            retention_period=Duration.days(14),
        )
        acknowledge(queue, "SQS3", "This queue is the place where failures end.")
        return queue

    def _layer(self, name: str) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            f"Layer{name.capitalize()}",
            code=lambda_.Code.from_asset(str(built(LAYERS / name))),
            compatible_architectures=[lambda_.Architecture.ARM_64],
            compatible_runtimes=[self._runtime],
        )


def reserved_executions(settings: Settings) -> dict[str, int]:
    """Returns the executions that ``reserve_concurrency`` keeps, by function."""
    return {**RESERVED, "sweep": settings.sweep_shares} if settings.reserve_concurrency else {}


def layers_runtime() -> str:
    """Returns the Python for which the layers are built, such as 3.13. Raises ``Wrong`` if they are not built."""
    return built(LAYERS / "runtime.txt").read_text().strip()


def keep_days(log_group: logs.LogGroup, days: int) -> None:
    resource = log_group.node.default_child
    assert isinstance(resource, logs.CfnLogGroup)
    resource.retention_in_days = days


def _allow(role: iam.Role, actions: Sequence[str], resources: Sequence[str]) -> None:
    role.add_to_policy(iam.PolicyStatement(actions=list(actions), resources=list(resources)))


def built(path: Path, command: str = "make layers") -> Path:
    """Returns the path. Raises ``Wrong``, which names the command that builds it, if it does not exist."""
    if not path.exists():
        raise Wrong(f"{path.relative_to(ROOT)} is not there: run `{command}` first")
    return path
