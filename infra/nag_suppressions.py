"""Suppresses findings of cdk-nag that are intended, each on the one resource that has it, with the reason."""

from typing import Any

from aws_cdk import Acknowledgment, Stack, Validations
from aws_cdk import aws_iam as iam
from constructs import IConstruct


def acknowledge(construct: IConstruct, finding: str, reason: str) -> None:
    """Suppresses a finding of the construct itself. ``finding``: its number, such as ``S1``."""
    resource = construct.node.default_child or construct
    Validations.of(resource).acknowledge(Acknowledgment(id=f"AwsSolutions::AwsSolutions-{finding}", reason=reason))


def allow_below(role: iam.Role, actions: list[str], resource: str, reason: str) -> None:
    """Allows the role these actions on a resource that ends with ``*``, and suppresses the finding about it."""
    role.add_to_policy(iam.PolicyStatement(actions=actions, resources=[resource]))
    shown = _shown(Stack.of(role).resolve(resource))
    acknowledge(role.node.find_child("DefaultPolicy"), f"IAM5[Resource::{shown}]", reason)


def _shown(value: Any) -> str:
    """Returns an ARN in the spelling of cdk-nag."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        return "".join(map(_shown, value["Fn::Join"][1]))
    return f"<{value['Ref'] if 'Ref' in value else '.'.join(value['Fn::GetAtt'])}>"
