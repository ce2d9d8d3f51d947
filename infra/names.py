"""Builds the names of resources that are needed before the resources exist: a function may need its own ARN."""

from aws_cdk import ArnFormat, Stack
from constructs import Construct

from hourwheel.model.wakeup_names import queue_prefix


def function_arn(scope: Construct, cell: str, function: str) -> str:
    return Stack.of(scope).format_arn(
        service="lambda",
        resource="function",
        resource_name=function_name(cell, function),
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def wakeup_queues_arn(scope: Construct, cell: str) -> str:
    return Stack.of(scope).format_arn(
        service="sqs", resource=f"{queue_prefix(cell)}*", arn_format=ArnFormat.NO_RESOURCE_NAME
    )


def function_name(cell: str, function: str) -> str:
    return f"{cell}-{function}"
