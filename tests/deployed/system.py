"""Creates and drives the system of a template on ministack."""

import http.client
import io
import json
import mmap
import os
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import boto3

from tests.contract.services import _wait_until_ready
from tests.ports import free_ports
from tests.unit.push.receivers import Authority, Receiver, receiving

from .template import ACCOUNT, CELL, REGION, Template

T = TypeVar("T")

HERE = Path(__file__).parent
HOST, PUBLIC_ADDRESS = "hooks.example.org", "93.184.215.14"
PATIENCE_SECONDS = 180.0
"""Longer than any step takes on a machine that is ten times slower."""
HOUR = 3_600
DAY = 24 * HOUR
ARCHIVE_MINUTES = 5
_LOOK_AGAIN_SECONDS = 0.05
_FAILED = object()
_DOES_NOT_MATTER = {
    *("CloudWatch::Alarm", "CloudWatch::Dashboard", "S3::BucketPolicy", "SQS::QueuePolicy"),
    *("Events::Rule", "Glue::Database", "Logs::MetricFilter"),
}
"""The types of resources that neither functions nor requests use."""


class Clock:
    """The clock of the functions and of Scheduler: it is ahead of the machine's, so that it began at ten past an
    hour."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._ahead = mmap.mmap(file.fileno(), 8)
        self.pass_time(DAY - time.time() % HOUR + 600)

    def pass_time(self, seconds: float) -> None:
        ahead_ns: int = struct.unpack("q", self._ahead[:8])[0]
        self._ahead[:8] = struct.pack("q", ahead_ns + round(seconds * 1e9))

    def now(self) -> float:
        """Returns the time in Unix seconds."""
        return time.time() + float(struct.unpack("q", self._ahead[:8])[0]) / 1e9


@dataclass
class System:
    """The system. ``once`` runs each step of the job once for all tests that need it."""

    endpoint: str
    template: Template
    clock: Clock
    log: Path
    hooks: Receiver
    answers: dict[Callable[..., Any], Any] = field(default_factory=dict)
    _read: int = 0
    _entries: list[dict[str, Any]] = field(default_factory=list)

    def once(self, step: "Callable[[System], T]") -> T:
        assert self.answers.get(step) != _FAILED, f"the step {step.__name__} has failed before"
        if step not in self.answers:
            self.answers[step] = _FAILED
            self.answers[step] = step(self)
        return cast(T, self.answers[step])

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name=REGION, endpoint_url=self.endpoint)

    @cached_property
    def dynamodb(self) -> Any:
        return self.client("dynamodb")

    @cached_property
    def functions(self) -> Any:
        return self.client("lambda")

    @cached_property
    def sqs(self) -> Any:
        return self.client("sqs")

    @cached_property
    def s3(self) -> Any:
        return self.client("s3")

    @cached_property
    def bucket(self) -> str:
        """Returns the bucket of the segments."""
        _, function = next(self.template.of_type("Lambda::Function"))
        return str(function["Environment"]["Variables"]["HOURWHEEL_BUCKET"])

    @cached_property
    def lake(self) -> str:
        """Returns the bucket of the lake."""
        variables = (found["Environment"]["Variables"] for _, found in self.template.of_type("Lambda::Function"))
        return str(next(found["HOURWHEEL_LAKE_BUCKET"] for found in variables if "HOURWHEEL_LAKE_BUCKET" in found))

    @cached_property
    def roles(self) -> dict[str, str]:
        """Returns the role of each function, by the function's name without the cell's."""
        return {
            found["FunctionName"].removeprefix(f"{CELL}-"): found["Role"].rpartition("/")[2]
            for _, found in self.template.of_type("Lambda::Function")
        }

    def entries(self) -> list[dict[str, Any]]:
        """Returns the records of ministack so far."""
        with self.log.open() as file:
            file.seek(self._read)
            while (line := file.readline()).endswith("\n"):
                self._entries.append(json.loads(line))
                self._read += len(line.encode())
        return self._entries

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Sends a request to the HTTP API, and returns the status and the answer."""
        (api_id,) = (made["Ref"] for key, made in self.template.made.items() if "ApiEndpoint" in made)
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=PATIENCE_SECONDS + 10)
        try:
            data = None if body is None else json.dumps(body).encode()
            url = f"/_aws/execute-api/{api_id}/$default{path}"
            connection.request(method, url, data, {"content-type": "application/json"} if data else {})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        finally:
            connection.close()

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.call(method, path, body)
        assert status in (200, 204), f"{method} {path}: {status} {answer}"
        return answer

    def until(self, condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
        """Repeats the question until its answer is true, and returns the answer."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, f"in {seconds} s there was nothing of: {what}"
            time.sleep(_LOOK_AGAIN_SECONDS)
        return found

    def ended(self, function: str, since: int = 0) -> list[dict[str, Any]]:
        """Returns the records of the invocations of a function that have ended."""
        return [entry for entry in self.entries()[since:] if entry.get("ended") == f"{CELL}-{function}"]

    def reported(self, since: int) -> str:
        """Returns the log of all functions since that record."""
        return "\n".join(entry["log"] for entry in self.entries()[since:] if "log" in entry)

    def listens(self) -> bool:
        """Returns whether the stream of the table is read."""
        return self._is_read("dynamodb")

    def reads_timers(self) -> bool:
        """Returns whether the queue of precise timers is read."""
        return self._is_read("sqs")

    def _is_read(self, service: str) -> bool:
        mappings = self.functions.list_event_source_mappings()["EventSourceMappings"]
        (state,) = (found["State"] for found in mappings if found["EventSourceArn"].split(":")[2] == service)
        return bool(state == "Enabled")

    @contextmanager
    def unswept(self) -> Iterator[None]:
        """Keeps Scheduler from starting the sweeper within the block, which begins once no sweep is under way."""
        scheduler = self.client("scheduler")
        schedules = self.template.of_type("Scheduler::Schedule")
        name, schedule = next((name, schedule) for name, schedule in schedules if "Sweep" in name)
        scheduler.update_schedule(Name=name, State="DISABLED", **schedule)
        try:
            self._await_sweeps()
            ordered = self._tended("scheduled")
            yield
            assert self._tended("scheduled") == ordered
        finally:
            scheduler.update_schedule(Name=name, State="ENABLED", **schedule)

    def _await_sweeps(self) -> None:
        """Waits for the end of all delayed work that Scheduler has ordered, and of the sweeps that it has started."""
        since = len(self.entries())
        # The first look may have begun while the schedule was enabled.
        self.until(lambda: sum("looked" in entry for entry in self.entries()[since:]) > 1, "two looks of Scheduler")
        self.until(lambda: self._tended("scheduled") <= self._tended("ended"), "the end of all delayed work")
        self.until(lambda: len(self.ended("sweep")) >= len(self._tended("ended")), "the end of all sweeps")

    def _tended(self, step: str) -> set[str]:
        """Returns the ids of the events of the function ``delayed`` that have reached this step: ``scheduled``, or
        ``ended``."""
        return {entry["event"]["id"] for entry in self.entries() if entry.get(step) == f"{CELL}-delayed"}

    def swept(self, times: int = 1) -> None:
        """Has Scheduler start delayed work this many times, and waits each time for the end of a sweep of all subjects
        that began after that."""
        for _ in range(times):
            while not self._swept_whole():
                pass

    def _swept_whole(self) -> bool:
        """Lets time pass, and waits for the end of a sweep that begins afterwards. Returns whether it tended all
        subjects: time that passes within a sweep cuts it off, and the next one goes on behind it."""
        self.until(lambda: len(self.ended("sweep")) >= self._begun("sweep"), "the end of the sweeps before")
        self.clock.pass_time(60)
        begun = self._begun("sweep")
        ended = self.until(lambda: self.ended("sweep")[begun:], "a sweep started by its schedule")
        reports = [sweep["answer"] or {} for sweep in (*self.ended("sweep")[:begun], *ended)]
        return all(report.get("is_complete") for report in reports[-2:])

    def _begun(self, function: str) -> int:
        """Returns how many invocations of a function have begun."""
        return sum(entry.get("started") == f"{CELL}-{function}" for entry in self.entries())

    def archived(self) -> dict[str, Any]:
        """Has Scheduler start the archiver until no row is left to archive. Returns the report of the last run."""

        def run() -> dict[str, Any]:
            before = len(self.ended("archive"))
            self.clock.pass_time(ARCHIVE_MINUTES * 60)
            found = self.until(lambda: self.ended("archive")[before:], "an archiver started by its schedule")
            return dict(found[-1]["answer"])

        while not (told := run())["complete"]:
            pass
        return told


@contextmanager
def _ministack(folder: Path, surroundings: Mapping[str, str]) -> Iterator[str]:
    """Starts a ministack that records, on the loopback interface, and yields its endpoint. It ends with its standard
    input, and the processes of the functions end with it."""
    (port,), log = free_ports(1), folder / "ministack.log"
    settings = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",  # it would listen on every interface, whatever BIND_HOST says
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "LAMBDA_STATE_TRANSITION_SECONDS": "0",
        "TMPDIR": str(folder),
        **surroundings,
    }
    # The processes of the functions inherit this environment, and must have the variables of the template only.
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("HOURWHEEL_")}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, str(HERE / "ministack_recording.py")],
            env=inherited | settings,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            _wait_until_ready(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@contextmanager
def deployed(template: Template, folder: Path) -> Iterator[System]:
    with ExitStack() as stack:
        authority = Authority(folder)
        hooks = stack.enter_context(receiving(context=authority.context(HOST)))
        clock, log = Clock(folder / "clock"), folder / "requests.jsonl"
        log.touch()
        surroundings = {
            "DEPLOYED_CLOCK": str(folder / "clock"),
            "DEPLOYED_LOG": str(log),
            "DEPLOYED_HOSTS": json.dumps({HOST: [PUBLIC_ADDRESS, hooks.port]}),
            "SSL_CERT_FILE": str(authority.path),
        }
        endpoint = stack.enter_context(_ministack(folder, surroundings))
        system = System(endpoint, template, clock, log, hooks)
        _Deployment(system).make()
        yield system


class _Deployment:
    """Creates the resources, each after those to which it refers."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._template = system.template

    def make(self) -> None:
        kinds = {
            "EMRServerless::Application": self._application,
            "IAM::Role": self._role,
            "Logs::LogGroup": self._log_group,
            "DynamoDB::Table": self._table,
            "S3::Bucket": self._bucket,
            "SQS::Queue": self._queue,
            "Scheduler::ScheduleGroup": self._schedule_group,
            "Lambda::LayerVersion": self._layer,
            "Lambda::Function": self._function,
            "Lambda::EventInvokeConfig": self._asynchronous,
            "Lambda::EventSourceMapping": self._mapping,
            **self._front(),
            "Scheduler::Schedule": self._schedule,
        }
        assert self._template.kinds() <= kinds.keys() | _DOES_NOT_MATTER | {"IAM::Policy"}
        self._upload()
        waiting = [
            (make, logical_id) for kind, make in kinds.items() for logical_id in self._template.logical_ids(kind)
        ]
        while waiting:
            waiting, left = [], waiting
            for make, logical_id in left:
                try:
                    properties = self._template.properties(logical_id)
                except KeyError:  # it refers to a resource that is created later
                    waiting.append((make, logical_id))
                else:
                    self._template.made[logical_id] = make(logical_id, properties)
            assert len(waiting) < len(left), f"they wait for each other: {waiting}"
        active = self._system.functions.get_waiter("function_active_v2")
        for function in self._system.functions.list_functions()["Functions"]:
            active.wait(FunctionName=function["FunctionName"], WaiterConfig={"Delay": 0.1, "MaxAttempts": 100})

    def _front(self) -> dict[str, Callable[[str, Any], dict[str, str]]]:
        """Returns the function that creates the resources through which requests reach the functions."""
        if "Lambda::Url" in self._template.kinds():
            return {"Lambda::Url": self._url}
        return {
            "ApiGatewayV2::Api": self._api,
            "Lambda::Permission": self._permission,
            "ApiGatewayV2::Integration": self._integration,
            "ApiGatewayV2::Route": self._route,
            "ApiGatewayV2::Stage": self._stage,
        }

    def _upload(self) -> None:
        s3 = self._system.client("s3")
        bucket = f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
        s3.create_bucket(Bucket=bucket)
        native = self._dependencies_key()
        for key, folder in self._template.assets().items():
            s3.put_object(Bucket=bucket, Key=key, Body=_surroundings() if key == native else _zipped(folder))

    def _dependencies_key(self) -> str:
        keys = (
            properties["Content"]["S3Key"]
            for logical_id, properties in self._template.of_type("Lambda::LayerVersion")
            if "Dependencies" in logical_id
        )
        return str(next(keys))

    def _role(self, logical_id: str, _: Any) -> dict[str, str]:
        name = f"{CELL}-{logical_id}"
        return {"Ref": name, "Arn": f"arn:aws:iam::{ACCOUNT}:role/{name}"}

    def _log_group(self, _: str, properties: Any) -> dict[str, str]:
        name = properties["LogGroupName"]
        return {"Ref": name, "Arn": f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}:*"}

    def _table(self, _: str, properties: Any) -> dict[str, str]:
        dynamodb, name = self._system.dynamodb, properties["TableName"]
        wanted = ("TableName", "KeySchema", "AttributeDefinitions", "BillingMode", "DeletionProtectionEnabled")
        stream = properties.get("StreamSpecification")
        more = {"StreamSpecification": {"StreamEnabled": True, **stream}} if stream else {}
        made = dynamodb.create_table(**{key: properties[key] for key in wanted}, **more)["TableDescription"]
        if "TimeToLiveSpecification" in properties:
            dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=properties["TimeToLiveSpecification"])
        return {"Ref": name, "Arn": made["TableArn"], "StreamArn": made.get("LatestStreamArn", "")}

    def _bucket(self, logical_id: str, _: Any) -> dict[str, str]:
        name = f"{CELL}-{logical_id}".lower()
        self._system.client("s3").create_bucket(Bucket=name)
        return {"Ref": name, "Arn": f"arn:aws:s3:::{name}"}

    def _queue(self, logical_id: str, properties: Any) -> dict[str, str]:
        name = f"{CELL}-{logical_id}"
        given = ("MessageRetentionPeriod", "VisibilityTimeout")
        attributes = {key: str(properties[key]) for key in given if key in properties}
        if "RedrivePolicy" in properties:
            attributes["RedrivePolicy"] = json.dumps(properties["RedrivePolicy"])
        url = self._system.sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
        return {"Ref": url, "Arn": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}", "QueueName": name}

    def _schedule_group(self, _: str, properties: Any) -> dict[str, str]:
        self._system.client("scheduler").create_schedule_group(Name=properties["Name"])
        return {"Ref": properties["Name"]}

    def _layer(self, logical_id: str, properties: Any) -> dict[str, str]:
        made = self._system.functions.publish_layer_version(LayerName=logical_id, **properties)
        return {"Ref": made["LayerVersionArn"]}

    def _function(self, _: str, properties: Any) -> dict[str, str]:
        functions, name = self._system.functions, properties["FunctionName"]
        config = dict(properties)
        loops, reserved = config.pop("RecursiveLoop", None), config.pop("ReservedConcurrentExecutions", None)
        config["Tags"] = {tag["Key"]: tag["Value"] for tag in config["Tags"]}
        made = functions.create_function(**config)
        if loops:
            functions.put_function_recursion_config(FunctionName=name, RecursiveLoop=loops)
        if reserved:
            functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=reserved)
        return {"Ref": name, "Arn": made["FunctionArn"]}

    def _asynchronous(self, _: str, properties: Any) -> dict[str, str]:
        self._system.functions.put_function_event_invoke_config(**properties)
        return {}

    def _url(self, _: str, properties: Any) -> dict[str, str]:
        made = self._system.functions.create_function_url_config(
            FunctionName=properties["TargetFunctionArn"], AuthType=properties["AuthType"]
        )
        return {"FunctionArn": made["FunctionArn"], "FunctionUrl": made["FunctionUrl"]}

    def _permission(self, logical_id: str, properties: Any) -> dict[str, str]:
        self._system.functions.add_permission(StatementId=logical_id[-64:], **properties)
        return {}

    def _mapping(self, _: str, properties: Any) -> dict[str, str]:
        properties["Tags"] = {tag["Key"]: tag["Value"] for tag in properties["Tags"]}
        return {"Ref": self._system.functions.create_event_source_mapping(**properties)["UUID"]}

    def _api(self, _: str, properties: Any) -> dict[str, str]:
        made = self._system.client("apigatewayv2").create_api(**properties)
        return {"Ref": made["ApiId"], "ApiEndpoint": made["ApiEndpoint"]}

    def _integration(self, _: str, properties: Any) -> dict[str, str]:
        return {"Ref": self._system.client("apigatewayv2").create_integration(**properties)["IntegrationId"]}

    def _route(self, _: str, properties: Any) -> dict[str, str]:
        return {"Ref": self._system.client("apigatewayv2").create_route(**properties)["RouteId"]}

    def _stage(self, _: str, properties: Any) -> dict[str, str]:
        self._system.client("apigatewayv2").create_stage(**properties)
        return {"Ref": properties["StageName"]}

    def _schedule(self, logical_id: str, properties: Any) -> dict[str, str]:
        if properties["Target"]["Arn"].split(":")[2] == "lambda":  # there is no EMR here
            self._system.client("scheduler").create_schedule(Name=logical_id, **properties)
        return {"Ref": logical_id}

    def _application(self, logical_id: str, properties: Any) -> dict[str, str]:
        arn = f"arn:aws:emr-serverless:{REGION}:{ACCOUNT}:/applications/{logical_id}"
        return {"Ref": logical_id, "ApplicationId": logical_id, "Arn": arn}


def _zipped(folder: Path) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.writestr(str(path.relative_to(folder)), path.read_bytes())
    return data.getvalue()


def _surroundings() -> bytes:
    """Makes a layer in place of the third-party layer, whose packages the virtual environment has."""
    site = f"python/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr(f"{site}/world.py", (HERE / "world.py").read_text())
        archive.writestr(f"{site}/world.pth", "import world; world.enter()\n")
    return data.getvalue()
