"""Provides the contract tests of push targets on AWS with batches, addresses, and a wire with given answers."""

import json
from collections import deque
from typing import Any

from botocore.awsrequest import AWSPreparedRequest

from hourwheel.adapters.aws.targets import AwsTargets
from hourwheel.adapters.webhooks import Webhooks
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import Message
from hourwheel.model.targets import Outcome, PushDelivery

from . import wire
from .simulated import InstantClock

REGION = "us-east-1"
ACCOUNT = "000000000000"
FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{{}}"
QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{{}}"
BUS = f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/{{}}"


def batch(*bodies: str, keys: tuple[str, ...] = ()) -> PushDelivery:
    return PushDelivery(
        "orders",
        "billing",
        0,
        tuple(
            Message(id=f"m-{index}", queue=0, offset=index, attempt=1, body=body, key=keys[index] if keys else None)
            for index, body in enumerate(bodies)
        ),
    )


def to_function(name: str, seconds: int = 5) -> PushTarget:
    return PushTarget(kind="lambda", address=FUNCTION.format(name), timeout_seconds=seconds)


def to_queue(name: str) -> PushTarget:
    return PushTarget(kind="sqs", address=QUEUE.format(name))


def to_bus(name: str, kind: Any = "eventbridge") -> PushTarget:
    return PushTarget(kind=kind, address=BUS.format(name))


class Opened(AwsTargets):
    """Targets whose clients the test can reach, and closes."""

    def __init__(self, endpoint_url: str | None = None) -> None:
        super().__init__(Webhooks(InstantClock()), allowed=["*"], endpoint_url=endpoint_url)

    def client(self, target: PushTarget) -> Any:
        service = {"lambda": "lambda", "sqs": "sqs"}.get(target.kind, "events")
        return self._client(service, target, target.timeout_seconds if service == "lambda" else 10)

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class Wire:
    """A wire. ``answers``: the answers or exceptions of the next requests; later ones succeed. ``calls``: the bodies
    of the requests."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.hosts: list[str] = []
        self.answers: deque[Any] = deque()
        self.targets = Opened()

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        self._listen(target)
        return self.targets.deliver(target, delivery)

    def announce(self, target: PushTarget) -> Outcome:
        self._listen(target)
        return self.targets.announce(target, "orders", "billing")

    def _listen(self, target: PushTarget) -> None:
        client = self.targets.client(target)
        client.meta.events.register_first(
            f"before-send.{client.meta.service_model.service_name}", self._send, unique_id="wire"
        )

    def _send(self, request: AWSPreparedRequest, **_: Any) -> Any:
        content: Any = request.body
        call = json.loads(content if isinstance(content, bytes | str) else content.read())
        self.calls.append(call)
        self.hosts.append(str(request.url))
        planned = self.answers.popleft() if self.answers else None
        if isinstance(planned, Exception):
            raise planned
        status, body = (200, _success(call)) if planned is None else planned
        return wire.answer(request, status, body if isinstance(body, bytes) else json.dumps(body).encode())


def _success(call: Any) -> Any:
    if "messages" in call:
        return {"batchItemFailures": []}
    if "QueueUrl" in call:
        return {"Successful": [{"Id": e["Id"], "MessageId": "x", "MD5OfMessageBody": "x"} for e in call["Entries"]]}
    return {"FailedEntryCount": 0, "Entries": [{"EventId": "x"} for _ in call["Entries"]]}


def sizes(calls: list[Any]) -> list[int]:
    return [len(call["Entries"]) for call in calls]
