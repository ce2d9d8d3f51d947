"""The pipeline of a cell on AWS: its stack says where things are, its daily schedule how a job is started there."""

from dataclasses import dataclass
from typing import Any, Self

import msgspec

from hourwheel.errors import HourwheelError, Rejected

_RUNS = 20
_ELSEWHERE = frozenset({"rebuild", "replay"})
"""Jobs that write to the queue: those on EMR Serverless reach neither its API nor its tables."""


class NoPipeline(HourwheelError):
    """What was named has no pipeline, or cannot be looked at."""


@dataclass(frozen=True)
class Deployed:
    """``outputs``: of the stack."""

    outputs: dict[str, str]
    region: str | None

    @classmethod
    def of(cls, stack: str, region: str | None) -> Self:
        """Raises ``NoPipeline``."""
        described = _call(region, "cloudformation", "describe_stacks", StackName=stack)["Stacks"][0]
        outputs = {one["OutputKey"]: one["OutputValue"] for one in described.get("Outputs", [])}
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

    def start(self, job: str, given: dict[str, str]) -> str:
        """Starts a job as the daily schedule would; the id of its run."""
        if job == "archive":
            name = self.outputs["ArchiveFunction"]
            answer = _call(self.region, "lambda", "invoke", FunctionName=name, InvocationType="Event", Payload=b"{}")
            return str(answer["ResponseMetadata"]["RequestId"])
        if job in _ELSEWHERE:
            raise Rejected("job-not-there", f"{job} is not started on AWS: see docs/pipeline.md")
        group, name = self.outputs["PipelineSchedule"].split("/")
        schedule = _call(self.region, "scheduler", "get_schedule", GroupName=group, Name=name)
        wish = _lowered(msgspec.json.decode(schedule["Target"]["Input"]))
        del wish["clientToken"]
        submit = wish["jobDriver"]["sparkSubmit"]
        kept = [one for one in submit["entryPointArguments"][1:] if _name(one) not in given]
        options = [f"--{name.replace('_', '-')}={text}" for name, text in given.items()]
        submit["entryPointArguments"] = [job, *kept, *options]
        return str(_call(self.region, "emr-serverless", "start_job_run", **{**wish, "name": job})["jobRunId"])

    def runs(self) -> list[dict[str, Any]]:
        """The last runs, the newest first."""
        application = self.outputs["PipelineApplicationId"]
        found = _call(self.region, "emr-serverless", "list_job_runs", applicationId=application, maxResults=_RUNS)
        return [
            {
                "run": run["id"],
                "job": run.get("name", ""),
                "state": run["state"],
                "created_at": run["createdAt"],
                "detail": run.get("stateDetails", ""),
            }
            for run in found["jobRuns"]
        ]


def _name(argument: str) -> str:
    return argument.removeprefix("--").partition("=")[0].replace("-", "_")


def _lowered(value: Any) -> Any:
    """As the SDK spells what Scheduler begins with capitals."""
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _lowered(item) for key, item in value.items()}
    return [_lowered(item) for item in value] if isinstance(value, list) else value


def _call(region: str | None, service: str, verb: str, **how: Any) -> Any:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        from hourwheel.adapters.aws import make_client
    except ModuleNotFoundError as error:
        raise NoPipeline("AWS needs botocore: pip install 'hourwheel[aws]'") from error
    try:
        return getattr(make_client(service, Config(), region=region, endpoint_url=None), verb)(**how)
    except (BotoCoreError, ClientError) as error:
        raise NoPipeline(f"{service}: {error}") from error
