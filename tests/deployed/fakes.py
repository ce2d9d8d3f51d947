"""Fakes the services that functions call, in this process: the parts that the tests need, and faults on the way.

The fakes answer where the SDK would send a request, so that its own parsing, errors and retries take part.
"""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError

from tests.contract.wire import answer

Item = dict[str, Any]


class Refused(Exception):
    """A fault that a service answers: the status, the code, and further fields."""

    def __init__(self, status: int, code: str, **more: Any) -> None:
        super().__init__(code)
        self.status, self.code, self.more = status, code, more


@dataclass
class Services:
    """The faked services. ``tables``: items by table, partition and sort key; ``objects`` by key; ``schedules`` and
    ``started`` (function, event) as they were requested; ``sent``: bodies in queues. ``before`` gets each request, and
    may raise a fault."""

    tables: dict[str, dict[str, dict[str, Item]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    schedules: dict[str, Any] = field(default_factory=dict)
    started: list[tuple[str, Any]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    before: Callable[[str, AWSPreparedRequest], AWSResponse | None] = lambda service, request: None

    def state(self) -> Any:
        return deepcopy((self.tables, self.objects, self.schedules, self.started, self.sent))

    def restore(self, state: Any) -> None:
        self.tables, self.objects, self.schedules, self.started, self.sent = deepcopy(state)

    def send(self, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
        _, service, _ = event_name.split(".")
        return self.before(service, request) or self.answered(service, request)

    def answered(self, service: str, request: AWSPreparedRequest) -> AWSResponse:
        try:
            data = {
                "dynamodb": self._dynamodb,
                "s3": self._s3,
                "lambda": self._lambda,
                "scheduler": self._scheduler,
                "sqs": self._sqs,
            }[service](request)
        except Refused as refused:
            return refusal(service, request, refused)
        return answer(request, 202 if service == "lambda" else 200, data)

    def _dynamodb(self, request: AWSPreparedRequest) -> bytes:
        asked = json.loads(request.body)
        verb = text(request.headers["X-Amz-Target"]).partition(".")[2]
        method = {
            "GetItem": self._get,
            "BatchGetItem": self._get_many,
            "PutItem": self._put,
            "DeleteItem": self._delete,
            "UpdateItem": self._update,
            "Query": self._query,
        }[verb]
        return json.dumps(method(asked)).encode()

    def _rows(self, table: str, partition: str) -> dict[str, Item]:
        return self.tables.setdefault(table, {}).setdefault(partition, {})

    def _place(self, table: str, key: Mapping[str, Any]) -> tuple[dict[str, Item], str]:
        return self._rows(table, key["pk"]["S"]), key.get("sk", {"S": ""})["S"]

    def _get(self, asked: Any) -> Any:
        rows, sort = self._place(asked["TableName"], asked["Key"])
        return {"Item": rows[sort]} if sort in rows else {}

    def _get_many(self, asked: Any) -> Any:
        ((table, wanted),) = asked["RequestItems"].items()
        found = [self._get({"TableName": table, "Key": key}) for key in wanted["Keys"]]
        return {"Responses": {table: [one["Item"] for one in found if one]}, "UnprocessedKeys": {}}

    def _put(self, asked: Any) -> Any:
        rows, sort = self._place(asked["TableName"], asked["Item"])
        _check(asked, rows.get(sort))
        rows[sort] = asked["Item"]
        return {}

    def _delete(self, asked: Any) -> Any:
        rows, sort = self._place(asked["TableName"], asked["Key"])
        _check(asked, rows.get(sort))
        rows.pop(sort, None)
        return {}

    def _update(self, asked: Any) -> Any:
        rows, sort = self._place(asked["TableName"], asked["Key"])
        item = rows.setdefault(sort, dict(asked["Key"]))
        values = asked["ExpressionAttributeValues"]
        kept = "#rows = if_not_exists(#rows, :rows), #numbers = if_not_exists(#numbers, :numbers)"
        if asked["UpdateExpression"] in (f"SET {kept}", f"SET #sealed = :true, {kept}"):
            for name in ("rows", "numbers"):
                item.setdefault(name, values[f":{name}"])
            if ":true" in values:
                item["sealed"] = {"BOOL": True}
        else:
            assert asked["UpdateExpression"] == "ADD #rows :rows, #numbers :numbers"
            if "sealed" in item:
                raise Refused(400, "ConditionalCheckFailedException")
            for name in ("rows", "numbers"):
                item[name] = {"N": str(int(item.get(name, {"N": "0"})["N"]) + int(values[f":{name}"]["N"]))}
        return {"Attributes": item}

    def _query(self, asked: Any) -> Any:
        values = asked["ExpressionAttributeValues"]
        rows = self._rows(asked["TableName"], values[":partition"]["S"])
        start = values.get(":start", {"S": ""})["S"]
        sorts = sorted((sort for sort in rows if sort >= start), reverse=not asked["ScanIndexForward"])
        return {"Items": [rows[sort] for sort in sorts[: asked["Limit"]]]}

    def _s3(self, request: AWSPreparedRequest) -> bytes:
        parts = urlsplit(text(request.url))
        key = unquote(parts.path).lstrip("/").partition("/")[2]
        if not key:
            prefix = parse_qs(parts.query)["prefix"][0]
            keys = sorted(found for found in self.objects if found.startswith(prefix))
            contents = "".join(f"<Contents><Key>{found}</Key></Contents>" for found in keys)
            return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
        if request.method == "PUT":
            if key in self.objects:
                raise Refused(412, "PreconditionFailed")
            body = request.body
            self.objects[key] = body if isinstance(body, bytes) else body.read()
        elif request.method == "GET":
            if key not in self.objects:
                raise Refused(404, "NoSuchKey")
            first, _, last = text(request.headers.get("Range", "bytes=0-")).removeprefix("bytes=").partition("-")
            return self.objects[key][int(first) : int(last) + 1 if last else None]
        else:
            self.objects.pop(key, None)
        return b""

    def _lambda(self, request: AWSPreparedRequest) -> bytes:
        function = unquote(urlsplit(text(request.url)).path).split("/")[3].rpartition("-")[2]
        self.started.append((function, json.loads(request.body)))
        return b""

    def _scheduler(self, request: AWSPreparedRequest) -> bytes:
        name = urlsplit(text(request.url)).path.rpartition("/")[2]
        if name in self.schedules:
            raise Refused(409, "ConflictException")
        self.schedules[name] = json.loads(request.body)
        return b'{"ScheduleArn": "arn"}'

    def _sqs(self, request: AWSPreparedRequest) -> bytes:
        entries = json.loads(request.body)["Entries"]
        self.sent += [entry["MessageBody"] for entry in entries]
        done = [{"Id": entry["Id"], "MessageId": "m", "MD5OfMessageBody": ""} for entry in entries]
        return json.dumps({"Successful": done, "Failed": []}).encode()


def _check(asked: Any, item: Item | None) -> None:
    condition = asked["ConditionExpression"]
    if condition == "attribute_not_exists(pk)":
        holds = item is None
    else:
        assert condition == "t = :expect"
        holds = item is not None and item["t"] == asked["ExpressionAttributeValues"][":expect"]
    if not holds:
        raise Refused(400, "ConditionalCheckFailedException", **({"Item": item} if item else {}))


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def refusal(service: str, request: AWSPreparedRequest, refused: Refused) -> AWSResponse:
    if service == "s3":
        document = f"<Error><Code>{refused.code}</Code><Message>no</Message></Error>".encode()
        return answer(request, refused.status, document, **{"Content-Type": "application/xml"})
    document = json.dumps({"__type": refused.code, "message": "no", **refused.more}).encode()
    return answer(request, refused.status, document, **{"x-amzn-errortype": refused.code})


# Faults on the way. Each gets the service, the request, and the function that would answer it.

Answer = Callable[[], AWSResponse]
Fault = Callable[[str, AWSPreparedRequest, Answer], AWSResponse]

_THROTTLED = {
    "dynamodb": (400, "ProvisionedThroughputExceededException"),
    "s3": (503, "SlowDown"),
    "lambda": (429, "TooManyRequestsException"),
    "scheduler": (429, "ThrottlingException"),
    "sqs": (400, "ThrottlingException"),
}


def throttled(service: str, request: AWSPreparedRequest, effect: Answer) -> AWSResponse:
    return refusal(service, request, Refused(*_THROTTLED[service]))


def failed_before_effect(service: str, request: AWSPreparedRequest, effect: Answer) -> AWSResponse:
    return answer(request, 500, b"")


def failed_after_effect(service: str, request: AWSPreparedRequest, effect: Answer) -> AWSResponse:
    effect()
    return answer(request, 503, b"<html>Service Unavailable</html>")


def not_connected(service: str, request: AWSPreparedRequest, effect: Answer) -> AWSResponse:
    raise ConnectTimeoutError(endpoint_url=request.url)


def connection_reset(service: str, request: AWSPreparedRequest, effect: Answer) -> AWSResponse:
    raise ConnectionClosedError(endpoint_url=request.url)


def reply_lost(service: str, request: AWSPreparedRequest, effect: Answer) -> AWSResponse:
    effect()
    raise ReadTimeoutError(endpoint_url=request.url)


FAULTS: tuple[Fault, ...] = (
    throttled,
    failed_before_effect,
    failed_after_effect,
    not_connected,
    connection_reset,
    reply_lost,
)
