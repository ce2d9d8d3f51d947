"""Reads the settings of a deployment: context values that begin with ``hourwheel:``.

cdk deploy -c hourwheel:cell=orders -c hourwheel:alarm_email=ops@example.org
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

PREFIX = "hourwheel:"

_LOG_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653)

_TARGETS_CHARACTERS = 2_000  # Lambda takes 4 KB of environment variables for a function
_HOST = r"https://(?:\*\.)?(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}"
_SUBJECTS = re.compile(r"[A-Za-z0-9._-]{1,100}\*?")
_TARGET = re.compile(
    r"arn:[a-z-]+:(?:lambda:[a-z0-9-]+:\d{12}:function:|sqs:[a-z0-9-]+:\d{12}:|events:[a-z0-9-]+:\d{12}:event-bus/)"
    r"[A-Za-z0-9._*/:-]*[A-Za-z0-9._/-][A-Za-z0-9._*/:-]*"
    rf"|{_HOST}"
)


_OPERATORS_CHARACTERS = 1_000
"""Lambda takes 4 KB of environment variables for a function."""

_OPERATOR = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:(?:role|user)/[A-Za-z0-9+=.@_/-]+")

_MOST_CELLS = 3
"""The policies of a role have at most 10,240 characters: those of the function push, with long names and the most
targets, have no room for more."""

WORKER_VCPUS, WORKER_GB = 4, 16
"""The size of a worker of the jobs; the driver is one."""


class Wrong(Exception):
    """The app cannot be synthesised. The message is a sentence for the operator."""


def _log_days(days: int) -> int:
    if days not in _LOG_DAYS:
        raise ValueError("not a retention that CloudWatch has")
    return days


def _cell(name: str) -> str:
    if name == "default":
        raise ValueError("EventBridge Scheduler has a group of this name already")
    return name


def _split(value: object) -> object:
    """Splits a list that the command line passes as one text."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _targets(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(len, patterns)) > _TARGETS_CHARACTERS:
        raise ValueError("too many or too long: a policy and a function's environment must hold them")
    for pattern in patterns:
        subjects, equals, target = pattern.rpartition("=")
        if not _TARGET.fullmatch(target) or (equals and not _SUBJECTS.fullmatch(subjects)):
            raise ValueError(f"{pattern} is no such entry")
    return patterns


def arn_of(entry: str) -> str | None:
    """Returns the ARN in an entry of ``push_targets``; None for a host of webhooks."""
    target = entry.rpartition("=")[2]
    return target if target.startswith("arn:") else None


def _operators(arns: tuple[str, ...]) -> tuple[str, ...]:
    if sum(map(len, arns)) > _OPERATORS_CHARACTERS or not all(map(_OPERATOR.fullmatch, arns)):
        raise ValueError("not the ARNs of roles or users, or too many of them")
    return arns


def _decoded(value: object) -> object:
    """Decodes an object that the command line passes as one text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return None  # None is no object: the error names the allowed values


class OtherCell(BaseModel):
    """A cell other than the home cell. ``kinds``: the kinds with which it is added unless the operator names others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kinds: tuple[Literal["real-time", "delay"], ...] = Field(("real-time", "delay"), min_length=1)


def _other_cells(cells: Mapping[str, OtherCell]) -> Mapping[str, OtherCell]:
    if len(cells) > _MOST_CELLS:
        raise ValueError("too many: the policies of the functions must hold them")
    for name in cells:
        if name == "home" or not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?", name):
            raise ValueError(f"{name} is no name of such a cell")
    return cells


def _setting(default: Any, allowed: str, **limits: Any) -> Any:
    """Returns the field of a setting. ``allowed``: the end of its error message, after "must be"."""
    return Field(default, description=allowed, **limits)


_ALLOWED_DAYS = "one of the days that CloudWatch has: " + ", ".join(map(str, _LOG_DAYS))
Memory: TypeAlias = Annotated[int, Field(ge=256, le=10_240)]
_MEMORY = "a whole number of MB from 256 to 10240"
_WARM = "a whole number of units a second from {} to 1000000"
_PULL_RATE = "a whole number of {} from 1 to 100000"


class Settings(BaseModel):
    """Settings of a deployment; ``docs/reference/settings.md`` explains each."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cell: Annotated[str, AfterValidator(_cell)] = _setting(
        "hourwheel",
        "3 to 30 lower-case letters, digits and hyphens, with a letter first and no hyphen last, and not default",
        pattern=r"^[a-z][a-z0-9-]{1,28}[a-z0-9]$",
    )
    cells: Annotated[dict[str, OtherCell], BeforeValidator(_decoded), AfterValidator(_other_cells)] = _setting(
        {},
        f"an object of at most {_MOST_CELLS} names, each 1 to 30 lower-case letters, digits and hyphens, not home, with"
        ' {} or {"kinds": ["real-time"]}',
    )
    retention_seconds: int = _setting(259_200, "a whole number of seconds from 60 to 2592000", ge=60, le=2_592_000)
    bucket_minutes: int = _setting(60, "a whole number of minutes from 5 to 60", ge=5, le=60)
    inline_bytes: int = _setting(12_288, "a whole number of bytes from 1024 to 307200", ge=1_024, le=307_200)
    shards: int = _setting(1, "a whole number from 1 to 100", ge=1, le=100)
    precise_timers: bool = _setting(True, "true or false")
    warm_write_units: int | None = _setting(None, _WARM.format(4_000), ge=4_000, le=1_000_000)
    warm_read_units: int | None = _setting(None, _WARM.format(12_000), ge=12_000, le=1_000_000)
    customer_key: bool = _setting(False, "true or false")
    bootstrap_key_arn: str | None = _setting(
        None,
        "the ARN of a KMS key in the region of the deployment",
        pattern=r"^arn:[a-z-]+:kms:[a-z0-9-]+:\d{12}:key/.+$",
    )
    retain: bool = _setting(True, "true or false")
    push: bool = _setting(True, "true or false")
    push_targets: Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_targets)] = _setting(
        (),
        "ARNs of Lambda functions, SQS queues or EventBridge buses, or hosts such as https://hooks.example.org, with"
        " commas between them, each ARN with its region and account, * only within the name and never the whole name or"
        " in front of a host, with the subjects in front if not all may (orders*=), 2000 characters in all",
    )
    pipeline: bool = _setting(False, "true or false")
    pipeline_release: str = _setting(
        "emr-spark-8.0.0", "a release of EMR such as emr-spark-8.1.0", pattern=r"^emr-spark-8\.\d+\.\d+$"
    )
    archive_minutes: int = _setting(60, "a whole number of minutes from 5 to 240", ge=5, le=240)
    pipeline_hour: int = _setting(2, "an hour of the day from 0 to 23, in UTC", ge=0, le=23)
    pipeline_vcpus: int = _setting(16, "a whole number of vCPUs from 8 to 2000", ge=8, le=2_000)
    throttle_rate: int = _setting(1_000, "a whole number of requests a second from 1 to 100000", ge=1, le=100_000)
    throttle_burst: int = _setting(1_000, "a whole number of requests from 1 to 100000", ge=1, le=100_000)
    pull_rate: int | None = _setting(None, _PULL_RATE.format("requests a second"), ge=1, le=100_000)
    pull_burst: int | None = _setting(None, _PULL_RATE.format("requests"), ge=1, le=100_000)
    pull_concurrency: int = _setting(0, "a whole number of executions from 0 to 100000", ge=0, le=100_000)
    max_wait_seconds: int = _setting(20, "a whole number of seconds from 0 to 20", ge=0, le=20)
    wake: bool = _setting(True, "true or false")
    auto_create: bool = _setting(True, "true or false")
    max_subjects: int = _setting(0, "a whole number from 0 to 1000000", ge=0, le=1_000_000)
    max_groups: int = _setting(0, "a whole number from 0 to 1000000", ge=0, le=1_000_000)
    sweep_shares: int = _setting(64, "a whole number of sweeps from 1 to 128", ge=1, le=128)
    lambda_concurrency: int = _setting(1_000, "a whole number of executions from 10 to 1000000", ge=10, le=1_000_000)
    front: Literal["api", "url"] = _setting("api", "api or url")
    operators: Annotated[tuple[str, ...], BeforeValidator(_split), AfterValidator(_operators)] = _setting(
        (), "ARNs of IAM roles or users with commas between them, 1000 characters in all"
    )
    domain_name: str | None = _setting(
        None,
        "a host name such as queue.example.org",
        pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
        max_length=253,
    )
    certificate_arn: str | None = _setting(
        None,
        "the ARN of an ACM certificate in the region of the deployment",
        pattern=r"^arn:[a-z-]+:acm:[a-z0-9-]+:\d{12}:certificate/[A-Za-z0-9-]+$",
    )
    memory_api: Memory = _setting(512, _MEMORY)
    memory_sweep: Memory = _setting(256, _MEMORY)
    memory_wheel: Memory = _setting(384, _MEMORY)
    memory_push: Memory = _setting(512, _MEMORY)
    memory_archive: Memory = _setting(1_024, _MEMORY)
    reserve_concurrency: bool = _setting(False, "true or false")
    access_log_class: Literal["standard", "infrequent"] = _setting("standard", "standard or infrequent")
    runtime: Literal["3.11", "3.12", "3.13", "3.14"] | None = _setting(None, "3.11, 3.12, 3.13 or 3.14")
    log_days: Annotated[int, AfterValidator(_log_days)] = _setting(30, _ALLOWED_DAYS)
    dashboard: bool = _setting(True, "true or false")
    table_alarms: bool = _setting(True, "true or false")
    alarm_email: str | None = _setting(
        None, "an e-mail address", pattern=r"^[^@\s,]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+$", max_length=254
    )
    alarm_oldest_seconds: int = _setting(3_600, "a whole number of seconds from 60 to 2592000", ge=60, le=2_592_000)
    alarm_dead_letters: int = _setting(0, "a whole number of messages from 0 to 1000000", ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _together(self) -> "Settings":
        if (self.domain_name is None) is not (self.certificate_arn is None):
            raise ValueError(
                f"{PREFIX}domain_name and {PREFIX}certificate_arn go together: set both to have a name of your own,"
                " or neither"
            )
        if self.front == "url" and not self.operators:
            raise ValueError(
                f"{PREFIX}front is url, and {PREFIX}operators is empty: nobody could create tokens. Name the role or"
                " user of an operator"
            )
        if self.front == "api" and self.operators:
            raise ValueError(
                f"{PREFIX}operators is set and {PREFIX}front is api, where IAM alone decides: leave it out"
            )
        if self.front == "url" and self.domain_name is not None:
            raise ValueError(f"{PREFIX}domain_name is for the HTTP API: function URLs have names of their own")
        if self.push_targets and not self.push:
            raise ValueError(f"{PREFIX}push_targets is set and {PREFIX}push is false: nothing would be pushed there")
        return self

    @classmethod
    def read(cls, context: Mapping[str, object]) -> "Settings":
        """Reads the settings from the app's context. Raises ``Wrong``."""
        values = {key.removeprefix(PREFIX): value for key, value in context.items() if key.startswith(PREFIX)}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            _refuse(cls, values, error)


def _refuse(model: type[BaseModel], values: Mapping[str, object], error: ValidationError) -> NoReturn:
    first = error.errors()[0]
    if not first["loc"]:
        raise Wrong(str(first["ctx"]["error"])) from None
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        raise Wrong(f"{PREFIX}{name} is not a setting: there are {', '.join(sorted(model.model_fields))}") from None
    raise Wrong(f"{PREFIX}{name} is {values[name]!r} and must be {model.model_fields[name].description}") from None


def operator_context(arguments: Sequence[str], file: Path) -> dict[str, object]:
    """Returns the context that the operator has set, in ``cdk.context.json`` and as ``-c key=value``."""
    context: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    pairs = iter(arguments)
    for argument in pairs:
        text = next(pairs, "") if argument in ("-c", "--context") else argument.removeprefix("--context=")
        key, equals, value = text.partition("=")
        if equals and key.startswith(PREFIX):
            context[key] = value
    return context
