"""Starts and lists the jobs of a cell on AWS. Reads where they are from the outputs of the stack, and their options
from its daily schedule."""

from dataclasses import dataclass
from typing import Any, Self

import msgspec

from hourwheel.errors import HourwheelError, Rejected

_RUNS = 20  # as many as fit on a screen
# These jobs write to the queue, and jobs on EMR Serverless reach neither its API nor its tables.
_ELSEWHERE = frozenset({"rebuild", "replay"})


class NoPipeline(HourwheelError):
    """Says that the stack has no pipeline, or that a call of AWS failed."""


@dataclass(frozen=True)
class Deployed:
    """Holds the ``outputs`` of a stack with a pipeline."""

    outputs: dict[str, str]
    region: str | None

    @classmethod
    def of(cls, stack: str, region: str | None) -> Self:
        """Returns the outputs of a stack. Raises ``NoPipeline`` if it has no pipeline, and for errors of AWS."""
        described = _call(region, "cloudformation", "describe_stacks", StackName=stack)["Stacks"][0]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", [])}
        if "PipelineApplicationId" not in outputs:
            raise NoPipeline(f"stack {stack} has no pipeline: deploy it with -c hourwheel:pipeline=true")
        return cls(outputs, region)

    @property
    def archive(self) -> str:
        return f"s3://{self.outputs['LakeBucket']}/archive"

    @property
    def lake(self) -> str:
        return f"s3://{self.outputs['LakeBucket']}/lake"

    @property
    def report(self) -> str:
        return f"s3://{self.outputs['LakeBucket']}/reports/report.html"

    @property
    def database(self) -> str:
        return self.outputs["LakeDatabase"]

    def start(self, job: str, changed: dict[str, str]) -> str:
        """Starts a job as the daily schedule would, but with the options in ``changed``. Returns the id of the run.
        Raises ``Rejected`` for a job that AWS cannot run, and ``NoPipeline`` for errors of AWS."""
        if job == "archive":
            name = self.outputs["ArchiveFunction"]
            answer = _call(self.region, "lambda", "invoke", FunctionName=name, InvocationType="Event", Payload=b"{}")
            return str(answer["ResponseMetadata"]["RequestId"])
        if job in _ELSEWHERE:
            raise Rejected("job-not-there", f"{job} is not started on AWS: see docs/pipeline.md")
        group, name = self.outputs["PipelineSchedule"].split("/")
        schedule = _call(self.region, "scheduler", "get_schedule", GroupName=group, Name=name)
        request = _lowered(msgspec.json.decode(schedule["Target"]["Input"]))
        del request["clientToken"]  # EMR takes a second request with one token for a repeated one
        submit = request["jobDriver"]["sparkSubmit"]
        kept = [argument for argument in submit["entryPointArguments"][1:] if _name(argument) not in changed]
        options = [f"--{name.replace('_', '-')}={text}" for name, text in changed.items()]
        submit["entryPointArguments"] = [job, *kept, *options]
        return str(_call(self.region, "emr-serverless", "start_job_run", **{**request, "name": job})["jobRunId"])

    def runs(self) -> list[dict[str, Any]]:
        """Returns the last runs, the newest first."""
        application = self.outputs["PipelineApplicationId"]
        answer = _call(self.region, "emr-serverless", "list_job_runs", applicationId=application, maxResults=_RUNS)
        return [
            {
                "run": run["id"],
                "job": run.get("name", ""),
                "state": run["state"],
                "created_at": run["createdAt"],
                "detail": run.get("stateDetails", ""),
            }
            for run in answer["jobRuns"]
        ]


def _name(argument: str) -> str:
    return argument.removeprefix("--").partition("=")[0].replace("-", "_")


def _lowered(value: Any) -> Any:
    """Returns the value with keys that begin in lower case: Scheduler spells the fields of a request with capitals, and
    the SDK does not."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _lowered(item) for key, item in value.items()}
    return [_lowered(item) for item in value] if isinstance(value, list) else value


def _call(region: str | None, service: str, verb: str, **how: Any) -> Any:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        from hourwheel.adapters.aws.clients import make_client
    except ModuleNotFoundError as error:
        raise NoPipeline("AWS needs botocore: pip install 'hourwheel[aws]'") from error
    try:
        return getattr(make_client(service, Config(), region=region, endpoint_url=None), verb)(**how)
    except (BotoCoreError, ClientError) as error:
        raise NoPipeline(f"{service}: {error}") from error
