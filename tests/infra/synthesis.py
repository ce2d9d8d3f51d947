"""Synthesises templates, and reads their contents as plain data."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aws_cdk import App

from app import synthesise
from infra.encryption import KEY_ACTIONS
from infra.settings import PREFIX

REGION, ACCOUNT = "eu-west-1", "111122223333"

_NAMED_IN_TEXT = re.compile(r"\$\{([^}]+)\}")

# The settings of users as the command line passes them: as text.
EVERYTHING = {
    "cell": "orders-eu",
    "retention_seconds": "600",
    "bucket_minutes": "5",
    "shards": "4",
    "inline_bytes": "8192",
    "warm_write_units": "10000",
    "warm_read_units": "30000",
    "customer_key": "true",
    "bootstrap_key_arn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/of-the-bootstrap",
    "pipeline_release": "emr-spark-8.1.0",
    "push_targets": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:ship, arn:aws:sqs:{REGION}:{ACCOUNT}:orders-*,"
    f"shop*=arn:aws:events:{REGION}:{ACCOUNT}:event-bus/shop,paid=arn:aws:events:{REGION}:{ACCOUNT}:event-bus/shop,"
    "https://*.example.org",
    "precise_timers": "true",
    "throttle_rate": "50",
    "throttle_burst": "70",
    "pull_rate": "15",
    "pull_burst": "2",
    "pull_concurrency": "40",
    "max_wait_seconds": "5",
    "auto_create": "false",
    "max_subjects": "20",
    "max_groups": "30",
    "sweep_shares": "3",
    "lambda_concurrency": "200",
    "domain_name": "queue.example.org",
    "certificate_arn": f"arn:aws:acm:{REGION}:{ACCOUNT}:certificate/0f1e-2d3c",
    "memory_api": "1024",
    "log_days": "7",
    "alarm_email": "ops@example.org",
    "alarm_oldest_seconds": "120",
    "alarm_dead_letters": "5",
    "reserve_concurrency": "true",
    "pipeline": "true",
    "archive_minutes": "30",
    "pipeline_hour": "4",
    "pipeline_vcpus": "35",
}
NOT_MUCH = {
    "push": "false",
    "precise_timers": "false",
    "retain": "false",
    "dashboard": "false",
    "log_days": "1",
    "table_alarms": "false",
    "access_log_class": "infrequent",
}
THROUGH_URLS = {
    "front": "url",
    "operators": f"arn:aws:iam::{ACCOUNT}:role/operator, arn:aws:iam::{ACCOUNT}:user/ops/anna",
}
FLAGS = json.loads((Path(__file__).parents[2] / "cdk.json").read_text())["context"]
"""The settings that the command line of the CDK passes to the app."""


@dataclass(frozen=True)
class Synthesis:
    """The output of the app for these settings."""

    settings: Mapping[str, str]
    folder: Path

    @property
    def cell(self) -> str:
        return self.settings.get("cell", "hourwheel")

    @cached_property
    def text(self) -> str:
        return (self.folder / f"{self.cell}.template.json").read_text()

    @cached_property
    def template(self) -> dict[str, Any]:
        return dict(json.loads(self.text))

    def file(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / name).read_text()))

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """Returns the resources of a kind such as ``Lambda::Function``, by logical id."""
        return {key: found for key, found in self.template["Resources"].items() if found["Type"] == f"AWS::{kind}"}

    def properties(self, kind: str) -> list[dict[str, Any]]:
        """Returns the properties of these resources as they would be after the deployment."""
        return [self.resolved(found["Properties"]) for found in self.resources(kind).values()]

    def functions(self) -> dict[str, dict[str, Any]]:
        """Returns the properties of the functions, by name without the cell's."""
        found = self.properties("Lambda::Function")
        return {function["FunctionName"].removeprefix(f"{self.cell}-"): function for function in found}

    @property
    def access_log(self) -> str:
        return f"/aws/vendedlogs/{self.cell}/api" + (
            "-infrequent" if self.settings.get("access_log_class") == "infrequent" else ""
        )

    @property
    def failures(self) -> str:
        """Returns the logical id of the queue of failures."""
        (queue,) = (key for key in self.resources("SQS::Queue") if "Failures" in key)
        return queue

    def key_uses(self) -> set[tuple[str, str]]:
        """Returns the actions that a role may take with the key of the cell, if it has one."""
        return {
            (action, f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{key}")
            for key in self.resources("KMS::Key")
            for action in KEY_ACTIONS
        }

    def statements(self, role: str) -> list[dict[str, Any]]:
        """Returns the permissions of the role with this ARN, with actions and resources as lists."""
        name = role.rpartition("/")[2]
        return [
            {**statement, "Action": listed(statement["Action"]), "Resource": listed(statement["Resource"])}
            for policy in self.properties("IAM::Policy")
            if name in policy["Roles"]
            for statement in policy["PolicyDocument"]["Statement"]
        ]

    def resolved(self, value: Any) -> Any:
        """Returns the value with resolved references, as CloudFormation would resolve them."""
        if isinstance(value, list):
            return [self.resolved(part) for part in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Ref": str(name)}:
                pseudo = {"AWS::Partition": "aws", "AWS::Region": REGION, "AWS::AccountId": ACCOUNT}
                return pseudo.get(name) or self._name(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return self._attribute(name, attribute)
            case {"Fn::Join": [between, parts]}:
                return between.join(self.resolved(part) for part in parts)
            case {"Fn::Sub": str(text)}:
                return _NAMED_IN_TEXT.sub(lambda found: self.resolved({"Ref": found[1]}), text)
        return {key: self.resolved(part) for key, part in value.items()}

    def _name(self, logical_id: str) -> str:
        if logical_id in self.resources("SQS::Queue"):
            return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{logical_id}"
        properties = self.template["Resources"].get(logical_id, {}).get("Properties", {})
        names = (properties.get(key) for key in ("FunctionName", "TableName", "LogGroupName"))
        return next((name for name in names if isinstance(name, str)), logical_id)

    def _attribute(self, logical_id: str, attribute: str) -> str:
        kind = self.template["Resources"][logical_id]["Type"].split("::")[1].lower()
        name = self._name(logical_id).rpartition("/")[2] if kind == "sqs" else self._name(logical_id)
        arns = {
            "iam": f"arn:aws:iam::{ACCOUNT}:role/{name}",
            "s3": f"arn:aws:s3:::{name}",
            "kms": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{name}",
            "lambda": f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}",
            "dynamodb": f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}",
        }
        arn = arns.get(kind, f"arn:aws:{kind}:{REGION}:{ACCOUNT}:{name}")
        found = {"Arn": arn, "StreamArn": f"{arn}/stream/label", "ApplicationId": name.lower()}
        return found.get(attribute, f"{name}.{attribute}")


def listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def synthesised(settings: Mapping[str, str], folder: Path) -> Synthesis:
    context = {**FLAGS, **{f"{PREFIX}{name}": value for name, value in settings.items()}}
    synthesise(App(outdir=str(folder), context=context, analytics_reporting=False))
    return Synthesis(settings, folder)
