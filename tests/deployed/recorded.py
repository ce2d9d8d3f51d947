"""Reads the requests that ministack recorded, as calls that IAM judges."""

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from hourwheel.aws.services import LAKE_PREFIX
from hourwheel.model.last_runs import FOLDER

from .policies import Call
from .template import ACCOUNT, CELL, REGION

_MAY_MISS = f"{LAKE_PREFIX}{FOLDER}/"  # the reader of these takes a 403 for a missing object
_PASSED_TO_SCHEDULER = (("iam:PassedToService", "scheduler.amazonaws.com"),)
_OBJECT_ACTIONS = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "GetObject", "DELETE": "DeleteObject"}


def calls_of(entry: Mapping[str, Any]) -> list[Call]:
    """Returns the calls for which a request needs permission. Fails for an unknown request."""
    service = entry["headers"]["authorization"].partition("Credential=")[2].split("/")[3]
    body = json.loads(entry["body"]) if entry["body"] and service != "s3" else {}
    needs = {
        "dynamodb": _of_table,
        "s3": _of_bucket,
        "scheduler": _of_schedule,
        "lambda": _of_function,
        "sqs": _of_queue,
        "events": _of_bus,
    }[service](entry, body)
    return [Call(entry["function"].removeprefix(f"{CELL}-"), *need) for need in needs]


Needs = Iterator[tuple[Any, ...]]


def _of_table(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Needs:
    verb = _verb(entry, "DynamoDB_20120810")
    for table in body.get("RequestItems", {}) or [body["TableName"]]:
        yield f"dynamodb:{verb}", f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}"


def _of_bucket(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Needs:
    bucket, _, key = unquote(entry["path"]).removeprefix("/").partition("/")
    query = parse_qs(entry["query"])
    bucket_arn = f"arn:aws:s3:::{bucket}"
    if not key:
        assert (entry["method"], query.get("list-type")) == ("GET", ["2"]), entry
        yield "s3:ListBucket", bucket_arn, (("s3:prefix", query["prefix"][0]),)
        return
    action = _OBJECT_ACTIONS[entry["method"]]
    yield f"s3:{action}", f"{bucket_arn}/{key}"
    if action == "GetObject" and entry["status"] == 404 and not key.startswith(_MAY_MISS):
        yield "s3:ListBucket", bucket_arn  # otherwise the answer would be 403


def _of_schedule(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Needs:
    kind, _, name = entry["path"].removeprefix("/").partition("/")
    assert (entry["method"], kind) == ("POST", "schedules"), entry
    yield "scheduler:CreateSchedule", f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/{body['GroupName']}/{name}"
    yield "iam:PassRole", body["Target"]["RoleArn"], _PASSED_TO_SCHEDULER


def _of_function(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Needs:
    date, kind, *named = unquote(entry["path"]).removeprefix("/").split("/")
    if kind == "event-source-mappings":
        verb = {"GET": "Get", "PUT": "Update"}[entry["method"]]
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:event-source-mapping:{named[0]}"
        yield f"lambda:{verb}EventSourceMapping", arn
        return
    function, verb = named
    assert (entry["method"], date, kind, verb) == ("POST", "2015-03-31", "functions", "invocations"), entry
    yield "lambda:InvokeFunction", function


def _of_queue(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Needs:
    verb = _verb(entry, "AmazonSQS")
    if verb == "CreateQueue":
        yield "sqs:CreateQueue", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{body['QueueName']}"
        return
    account, queue = body["QueueUrl"].split("/")[-2:]
    action = {"SendMessageBatch": "SendMessage", "SendMessage": "SendMessage", "DeleteQueue": "DeleteQueue"}[verb]
    yield f"sqs:{action}", f"arn:aws:sqs:{REGION}:{account}:{queue}"


def _of_bus(entry: Mapping[str, Any], body: Mapping[str, Any]) -> Needs:
    assert _verb(entry, "AWSEvents") == "PutEvents", entry
    for bus in {event["EventBusName"] for event in body["Entries"]}:
        yield "events:PutEvents", bus


def _verb(entry: Mapping[str, Any], service: str) -> str:
    named, _, verb = entry["headers"]["x-amz-target"].partition(".")
    assert named == service, entry
    return str(verb)
