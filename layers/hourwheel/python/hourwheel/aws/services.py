"""Builds the services of a Lambda function from its environment: a deployment on DynamoDB and S3."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, TypedDict

import msgspec
from aws_lambda_powertools.logging import Logger
from msgspec import Meta

from hourwheel.adapters.aws import dynamodb, s3
from hourwheel.adapters.aws.functions import AsyncFunction, LambdaPushes, MappedStream
from hourwheel.adapters.aws.scheduler import SchedulerTimers
from hourwheel.adapters.aws.sqs import SqsWakeupQueues
from hourwheel.adapters.aws.timer_queue import TimerQueue
from hourwheel.adapters.metrics import EmfMeter
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.api.boundary import Boundary, log_line
from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.aws.compression import compressed
from hourwheel.cells.store_formats import check_formats
from hourwheel.context import Context, Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.targets import NoTargets, Targets
from hourwheel.model.wakeup_names import queue_prefix
from hourwheel.ports.machine import Clock, Ids
from hourwheel.ports.pushing import NoPushes, NoStream
from hourwheel.ports.storage import Blobs, Cells, CellStorage, Store
from hourwheel.ports.waking import WakeupQueues
from hourwheel.system import SystemClock, SystemIds

if TYPE_CHECKING:
    from hourwheel.aws.cells import CellLocation
    from hourwheel.aws.urls import UrlFront

_PREFIX = "HOURWHEEL_"

# The stack grants access by these prefixes of the lake bucket (docs/iam.md).
ARCHIVE_PREFIX = "archive/"
LAKE_PREFIX = "lake/"

_SETTINGS = (
    "inline_bytes",
    "bucket_minutes",
    "shards",
    "retention_seconds",
    "archive",
    "max_wait_seconds",
    "auto_create",
    "max_subjects",
    "max_groups",
    "sweep_shares",
)

_BATCH_BUCKETS = 100
"""The delayed messages of a batch may fall into at most this many buckets: each takes up to five calls one after the
other, and API Gateway waits 30 s."""

_COMPRESSION_LEVEL = 9
"""A write unit of DynamoDB costs as much as 5 ms of CPU. For 100 messages of 327 bytes, level 9 takes 0.3 ms more CPU
than level 1 and saves one write unit of five."""

BRIEF_SECONDS = 0.1
"""A call on one of many logs is repeated for this long: some four times, as a step waits for the last of them."""

THREADS = 16
"""A step of a wheel, or a sweep, makes this many calls at the same time at most: half of the connections of the
client."""

_URL_ROUTE = "$default"
"""The route in all events of function URLs. The HTTP API has no route of this name, so the name tells the two apart."""

_SWEEP_REST_SECONDS = 32 * 60
"""AWS charges for reads, so the sweeper checks idle logs about twice an hour."""

_FunctionArn = Annotated[str, Meta(pattern=r"^arn:[^:]+:lambda:[^:]+:[^:]+:function:.+$")]


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Holds the environment variables of a function, each named ``HOURWHEEL_`` and the field in capitals.

    Lists are separated by commas.

    - ``cell`` names the cell in metrics and logs. ``cells`` is a JSON object of the other cells: their ``CellLocation``
      by name.
    - ``timer_queue`` is the URL of the queue of precise timers. ``timer_mapping`` names the event source mapping that
      reads the queue; only the function that switches the mapping has it.
    - ``sweep_function`` is the function that sweeps; only the function that starts it each minute has it.
    - ``push_targets`` lists the ARNs and the hosts of webhooks that groups may name as targets, with ``*`` for any
      text, each behind the subjects that may (``orders*=``). Without it the function neither sets targets nor pushes.
      ``push_mapping`` lists the event source mappings that read the streams of the tables while any group has a target.
    - With ``wake``, consumers wait at wake-up queues of SQS, to which the function sends. ``wakeup_key`` is the ARN of
      the KMS key of these queues; only the function that makes them has it.
    - With ``archive``, no row is removed before it is archived. ``lake_bucket`` names the bucket to which the function
      ``archive`` writes, and in which ``meta`` reads the numbers of the pipeline's last runs.
    - ``operators`` lists the ARNs of the roles and users that need no token at function URLs. ``endpoints`` is a JSON
      object of the URLs of the other functions, by function.
    """

    table_prefix: Annotated[str, Meta(min_length=3, max_length=200)]
    bucket: Annotated[str, Meta(min_length=3, max_length=63)]
    region: str | None = None
    endpoint_url: str | None = None
    cell: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,30}$")] = "hourwheel"
    wheel_function: _FunctionArn
    timer_group: Annotated[str, Meta(min_length=1, max_length=64)]
    timer_role: Annotated[str, Meta(pattern=r"^arn:[^:]+:iam::[^:]*:role/.+$")]
    timer_queue: Annotated[str, Meta(pattern=r"^https?://.+$")] | None = None
    timer_mapping: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}$")] | None = None
    sweep_function: _FunctionArn | None = None
    push_function: _FunctionArn | None = None
    push_mapping: Annotated[str, Meta(pattern=r"^[A-Za-z0-9-]{1,64}(,[A-Za-z0-9-]{1,64})*$")] | None = None
    push_targets: str | None = None
    inline_bytes: int = Settings().inline_bytes
    bucket_minutes: int = Settings().bucket_minutes
    shards: int = Settings().shards
    retention_seconds: int = Settings().retention_seconds
    archive: bool = Settings().archive
    max_wait_seconds: float = Settings().max_wait_seconds
    auto_create: bool = Settings().auto_create
    max_subjects: int = Settings().max_subjects
    max_groups: int = Settings().max_groups
    sweep_shares: int = Settings().sweep_shares
    wake: bool = False
    wakeup_key: Annotated[str, Meta(pattern=r"^arn:[^:]+:kms:.+$")] | None = None
    lake_bucket: Annotated[str, Meta(min_length=3, max_length=63)] | None = None
    cells: str | None = None
    operators: str | None = None
    endpoints: str | None = None

    def __post_init__(self) -> None:
        # A wrong value fails the start of the process, where the deployer sees it, instead of a later request.
        self.parse_cells()
        if self.endpoints is not None:
            self.parse_front()

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> "Environment":
        """Returns the environment. Raises ``ValueError`` with the name of a missing, unknown or wrong variable."""
        named = {
            name.removeprefix(_PREFIX).lower(): text for name, text in variables.items() if name.startswith(_PREFIX)
        }
        return msgspec.convert(named, cls, strict=False)

    @property
    def settings(self) -> Settings:
        """The settings of the deployment. Raises ``ValueError`` for a value that is out of its limits."""
        chosen = {name: getattr(self, name) for name in _SETTINGS}
        fixed = {  # what suits AWS does not depend on the deployment
            "compression_level": _COMPRESSION_LEVEL,
            "batch_buckets": _BATCH_BUCKETS,
            "sweep_rest_seconds": _SWEEP_REST_SECONDS,
        }
        return msgspec.convert({**chosen, **fixed}, Settings)

    def parse_cells(self) -> "dict[str, CellLocation]":
        """Returns the storage of the other cells by name. Raises ``ValueError`` for a wrong value of ``cells``."""
        if self.cells is None:
            return {}
        from hourwheel.aws.cells import CellLocation  # most deployments have the home cell alone

        return msgspec.json.decode(self.cells, type=dict[str, CellLocation])

    def wakeup_queues(self, clock: Clock) -> WakeupQueues | None:
        """Returns the queues at which the consumers of dozing groups wait; None where consumers wait in pulls."""
        if not self.wake:
            return None
        account = self.wheel_function.split(":")[4]  # the fifth part of an ARN
        prefix = queue_prefix(self.cell)
        return SqsWakeupQueues(
            clock, prefix, account, key=self.wakeup_key, region=self.region, endpoint_url=self.endpoint_url
        )

    def parse_front(self) -> "UrlFront":
        """Returns the settings for requests to function URLs. Raises ``ValueError`` for a wrong value of
        ``endpoints``."""
        from hourwheel.aws.urls import UrlFront, identity  # most deployments have the HTTP API alone

        operators = frozenset(identity(arn) for arn in (self.operators or "").split(",") if arn)
        return UrlFront(operators, msgspec.json.decode(self.endpoints or "{}", type=dict[str, str]))

    @property
    def targets(self) -> Targets:
        if self.push_targets is None:
            return NoTargets()
        # Only meta and push have targets, and HTTPS takes long to import.
        from hourwheel.adapters.aws.targets import AwsTargets
        from hourwheel.adapters.webhooks import Webhooks

        allowed = [pattern for pattern in self.push_targets.split(",") if pattern]
        return AwsTargets(Webhooks(SystemClock()), allowed=allowed, endpoint_url=self.endpoint_url)


class _AwsLocation(TypedDict):
    region: str | None
    endpoint_url: str | None


def _lake_blobs(environment: Environment, prefix: str) -> s3.S3Blobs | None:
    """Returns the objects of the lake bucket with this prefix; None where the environment names no bucket."""
    if environment.lake_bucket is None:
        return None
    opened = partial(s3.client, region=environment.region, endpoint_url=environment.endpoint_url)
    return s3.S3Blobs(opened, environment.lake_bucket, prefix)


def _other_cells(
    environment: Environment, opened: Callable[[str, str], CellStorage], home: Store, clock: Clock, ids: Ids
) -> Cells:
    """Returns the object that opens the cells other than the home cell."""
    # Imported here: most deployments have the home cell alone, and each import delays a cold start.
    from hourwheel.aws.cells import AwsCells
    from hourwheel.cells.cell_storage import GuardedCells

    def open_storage(cell: "CellLocation") -> CellStorage:
        return opened(cell.prefix, cell.bucket)

    cells = AwsCells(environment.parse_cells(), open_storage, home, clock, ids)
    return GuardedCells(cells, home, clock, ids)


@dataclass(frozen=True)
class Services:
    """Holds the services of one process of a function."""

    boundary: Boundary
    meter: EmfMeter
    environment: Environment

    @classmethod
    def from_environment(cls) -> "Services":
        environment = Environment.read(os.environ)
        clock, ids = SystemClock(), SystemIds()
        location: _AwsLocation = {"region": environment.region, "endpoint_url": environment.endpoint_url}
        meter = EmfMeter(namespace="Hourwheel", service=environment.cell, clock=clock)
        client = dynamodb.client(**location)

        def opened(prefix: str, bucket: str) -> CellStorage:
            store = RetryingStore(dynamodb.DynamoStore(client, prefix=prefix), clock, ids, meter=meter)
            return CellStorage(store, s3.S3Blobs(partial(s3.client, **location), bucket))

        home = opened(environment.table_prefix, environment.bucket)
        wheel = AsyncFunction(environment.wheel_function, **location)
        timers = SchedulerTimers(
            clock, function=wheel, role=environment.timer_role, group=environment.timer_group, **location
        )
        context = Context(
            store=home.store,
            brief_store=RetryingStore(
                dynamodb.DynamoStore(client, prefix=environment.table_prefix),
                clock,
                ids,
                meter=meter,
                budget_seconds=BRIEF_SECONDS,
            ),
            threads=THREADS,
            blobs=home.blobs,
            cells=_other_cells(environment, opened, home.store, clock, ids) if environment.cells else None,
            clock=clock,
            ids=ids,
            wakeups=PollingWakeups(clock),
            wakeup_queues=environment.wakeup_queues(clock),
            meter=meter,
            timers=timers,
            precise_timers=TimerQueue(
                timers, queue_url=environment.timer_queue, mapping=environment.timer_mapping, **location
            )
            if environment.timer_queue
            else None,
            pushes=LambdaPushes(AsyncFunction(environment.push_function, **location))
            if environment.push_function
            else NoPushes(),
            stream=MappedStream(environment.push_mapping.split(","), **location)
            if environment.push_mapping
            else NoStream(),
            lake=None if (blobs := _lake_blobs(environment, LAKE_PREFIX)) is None else s3.S3LakeFiles(blobs),
            settings=environment.settings,
        )
        # The logger is named after the service "hourwheel", so it also writes the lines that the library logs.
        logger = Logger(service="hourwheel", use_rfc3339=True, utc=True, json_serializer=log_line)
        logger.append_keys(service=environment.cell)
        return cls(Boundary(Deployment(context, environment.targets), logger), meter, environment)

    @cached_property
    def _sweep(self) -> AsyncFunction:
        environment = self.environment
        if environment.sweep_function is None:
            raise ValueError("HOURWHEEL_SWEEP_FUNCTION is not set: name the function sweep in it")
        return AsyncFunction(
            environment.sweep_function, region=environment.region, endpoint_url=environment.endpoint_url
        )

    def start_sweep(self, event: Event) -> None:
        """Starts the function that sweeps. Raises ``Unavailable`` and ``Broken``."""
        self._sweep.start(event)

    @property
    def lake(self) -> Blobs:
        """The blobs of the archive. Raises ``ValueError`` where the environment names no lake bucket."""
        blobs = _lake_blobs(self.environment, ARCHIVE_PREFIX)
        if blobs is None:
            raise ValueError("HOURWHEEL_LAKE_BUCKET is not set: name the bucket of the archive in it")
        return blobs

    def http_handler(self, function: Function, name: str) -> Callable[[Event, Invocation], Response]:
        """Returns a handler for requests to the function ``name``, which answers every error with a problem document.
        Requests come from the HTTP API, or through the URL of the function."""

        def fronted(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
            if event["routeKey"] != _URL_ROUTE:
                return function(deployment, event, context)
            from hourwheel.aws.urls import serve  # most deployments have the HTTP API alone

            return serve(name, function, deployment, event, context, self._url_front)

        answered = self._checked(fronted)
        return self._handler(lambda event, context: compressed(event, self.boundary.answer(answered, event, context)))

    @cached_property
    def _url_front(self) -> "UrlFront":
        return self.environment.parse_front()

    def task_handler(
        self, function: Function, *, keeps_format: bool = False
    ) -> Callable[[Event, Invocation], Response]:
        """Returns a handler for invocations by timers and functions. An error fails the invocation: AWS then counts it,
        and repeats an event of the wheel. ``keeps_format``: the function also stores the format of each cell."""
        checked = self._checked(function, keeps_format=keeps_format)
        return self._handler(lambda event, context: self.boundary.run(checked, event, context))

    def _checked(self, function: Function, *, keeps_format: bool = False) -> Function:
        """Returns a function that checks the format of the tables before its first call, and does not run on tables
        that this version must not use. What it could not store is tried again at the next call."""
        # Not at import: a refusal is a sentence in the answer and in the log, and a throttled read is tried again.
        is_checked = False

        def checked(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
            nonlocal is_checked
            if not is_checked:
                is_checked = check_formats(deployment.context, keep=keeps_format)
            return function(deployment, event, context)

        return checked

    def _handler(self, call: Callable[[Event, Invocation], Response]) -> Callable[[Event, Invocation], Response]:
        def handler(event: Event, context: Invocation) -> Response:
            try:
                return call(event, context)
            finally:
                self.meter.flush()  # Lambda may freeze the process after the answer, and never thaw it

        return handler
