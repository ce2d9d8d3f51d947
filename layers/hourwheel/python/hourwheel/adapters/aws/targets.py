"""Delivers to targets on AWS: Lambda functions, SQS queues, EventBridge buses; ``webhooks.py`` delivers over HTTPS.

A queue gets a message, and a bus an event, for each message, with the JSON of a pulled message; a function gets the
batch. Clients send each request once, because the pusher decides what is retried. A call whose answer is lost is
repeated later, so a target may get a message twice, as with every delivery. An ARN names the region of its target.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import msgspec
from botocore.config import Config
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    ProxyConnectionError,
    SSLError,
)

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import FOREIGN, LOST_ANSWERS, error_code
from hourwheel.adapters.webhooks import Webhooks
from hourwheel.errors import Rejected
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import Message
from hourwheel.model.targets import DONE, Outcome, PushDelivery, answered, failure, unreached

if TYPE_CHECKING:
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_sqs import SQSClient

SOURCE = "hourwheel"
MESSAGE_EVENT = "Hourwheel Message"
AVAILABLE_EVENT = "Hourwheel Messages Available"

CONNECT_SECONDS = 2.0
_READ_SECONDS = 10  # for SQS and EventBridge; a function has the ``timeout_seconds`` of its target
_CONNECTIONS = 20  # a group may have this many deliveries under way at once

_FUNCTION_BYTES = 6 << 20  # the largest payload of a synchronous invocation of Lambda
_TOO_LARGE = frozenset(
    {
        "413",
        "AWS.SimpleQueueService.BatchRequestTooLong",
        "BatchRequestTooLong",
        "RequestEntityTooLargeException",
        "RequestTooLargeException",
    }
)
_ABOUT_MESSAGES = frozenset(
    {
        "InvalidMessageContents",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "InvalidRequestContentException",
        "UnsupportedMediaTypeException",
        "ValidationException",
    }
)
"""Codes of refusals that concern one message: the target may take another message."""

_ENTRIES = 10  # the most that SendMessageBatch and PutEvents take in one call
_QUEUE_BYTES = 1 << 20  # SQS: of one message, and of all messages of a call together
_BUS_BYTES = 256 << 10  # EventBridge: of all events of a call together
_ENTRY_BYTES = 1_000  # the names of an entry take less than this in addition to its content

_MALFORMED = frozenset({"InvalidArgument", "MalformedDetail"})
"""Codes by which a bus refuses an event for its content; any other code says nothing about the event."""

_NOT_CONNECTED = (ConnectTimeoutError, EndpointConnectionError, ProxyConnectionError, SSLError)
_WEB = "https://"
_FIFO_CHARACTERS = frozenset("!\"#$%&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~")
_PLACE = r":(?P<region>[a-z]{2,4}(?:-[a-z]{1,20}){1,3}-[0-9]{1,2}):(?P<account>[0-9]{12}):"
_BUS = ("events", r"event-bus/[A-Za-z0-9._/-]{1,256}", "event-bus/NAME")
_RESOURCES = {
    "lambda": (
        "lambda",
        r"function:[A-Za-z0-9_-]{1,64}(?::(?:\$LATEST|[A-Za-z0-9_-]{1,128}))?",
        "function:NAME or function:NAME:ALIAS",
    ),
    "sqs": ("sqs", r"(?P<queue>[A-Za-z0-9_-]{1,75}\.fifo|[A-Za-z0-9_-]{1,80})", "NAME"),
    "eventbridge": _BUS,
    "notify": _BUS,
}
"""For each kind of target: the service in its ARN, the pattern of the resource, and the form of it for people."""

_ARNS = {
    kind: re.compile(f"arn:aws[a-z-]{{0,20}}:{service}{_PLACE}{resource}")
    for kind, (service, resource, _) in _RESOURCES.items()
}
_encoder = msgspec.json.Encoder()


class _Refusal(NamedTuple):
    """An entry of a call that the target refused. With ``passing`` the reason is not its content, so the entry may be
    retried."""

    message: int
    code: str
    passing: bool


Send = Callable[[PushDelivery, Sequence[str]], list[_Refusal]]


class _PushEntry(NamedTuple):
    """An entry of the setting ``push_targets``: the subjects whose messages may go to these targets. ``web`` says that
    the targets are hosts of webhooks and not ARNs."""

    subjects: re.Pattern[str]
    targets: re.Pattern[str]
    web: bool

    @classmethod
    def read(cls, entry: str) -> "_PushEntry":
        """Returns the entry in a text such as ``orders*=arn:aws:sqs:…`` or ``https://*.example.org``."""
        subjects, _, targets = entry.rpartition("=")
        return cls(_like(subjects or "*"), _like(targets.removeprefix(_WEB)), targets.startswith(_WEB))


def _like(pattern: str) -> re.Pattern[str]:
    """Returns the expression of a pattern in which ``*`` stands for any text."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


class AwsTargets:
    """Implements ``Targets`` for a deployment on AWS. It may deliver to the ARNs that an entry of ``allowed`` names.
    Over HTTPS it may deliver to the hosts that entries name, or to all public hosts if no entry names a host. The first
    delivery to a service and region makes its client."""

    def __init__(self, webhooks: Webhooks, *, allowed: Sequence[str], endpoint_url: str | None = None) -> None:
        self._webhooks = webhooks
        self._allowed = [_PushEntry.read(entry) for entry in allowed]
        self._any_host = not any(entry.web for entry in self._allowed)
        self._endpoint_url = endpoint_url
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str, int], Any] = {}

    def check(self, target: PushTarget, subject: str) -> None:
        if target.kind == "python":
            raise Rejected("field-invalid", "push.kind: a Python target needs the embedded server", field="push.kind")
        if target.kind == "https":
            self._webhooks.check(target)
        elif not _ARNS[target.kind].fullmatch(target.address):
            service, _, form = _RESOURCES[target.kind]
            detail = f"push.arn: a target {target.kind!r} has an ARN arn:aws:{service}:REGION:ACCOUNT:{form}"
            raise Rejected("field-invalid", detail, field="push.arn")
        if not self._allows(target, subject):
            field = "push.url" if target.kind == "https" else "push.arn"
            detail = f"{_refused(target, subject)}: add it to the context value push_targets and deploy again"
            raise Rejected("field-invalid", f"{field}: {detail}", field=field)

    def _allows(self, target: PushTarget, subject: str) -> bool:
        web = target.kind == "https"
        address = urlsplit(target.address).hostname or "" if web else target.address
        return (web and self._any_host) or any(
            entry.web is web and entry.subjects.fullmatch(subject) and entry.targets.fullmatch(address)
            for entry in self._allowed
        )

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        # The setting may have changed since the group got its target.
        if not self._allows(target, delivery.subject):
            return unreached(_refused(target, delivery.subject))
        if target.kind == "https":
            return self._webhooks.deliver(target, delivery)
        deliver = {"lambda": self._invoke, "sqs": self._send, "eventbridge": self._publish}[target.kind]
        return _asked(delivery, lambda: deliver(target, delivery))

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        if not self._allows(target, subject):
            return unreached(_refused(target, subject))
        detail = _encoder.encode({"subject": subject, "group": group}).decode()

        def put() -> Outcome:
            refused = self._put(target, AVAILABLE_EVENT, [detail])
            return unreached(refused[0].code) if refused else DONE

        outcome = _asked(PushDelivery(subject, group, 0, ()), put)
        # An announcement has no messages whose attempts could count, so a failed one counts as one that did not arrive:
        # it is repeated after a pause.
        return outcome if outcome == DONE else unreached(outcome.error)

    def _invoke(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        payload = delivery.encoded()
        if len(payload) > _FUNCTION_BYTES:
            return Outcome(too_large=True, error=f"a function takes {_FUNCTION_BYTES} bytes at most")
        functions: LambdaClient = self._client("lambda", target, target.timeout_seconds)
        answer = functions.invoke(FunctionName=target.address, Payload=payload)
        data = answer["Payload"].read()
        if "FunctionError" in answer:
            return failure(delivery, f"the function failed: {data[:200].decode(errors='replace')}")
        return answered(delivery, data)

    def _send(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        queues: SQSClient = self._client("sqs", target, _READ_SECONDS)
        match = _ARNS["sqs"].fullmatch(target.address)
        assert match is not None
        queue = f"{queues.meta.endpoint_url}/{match['account']}/{match['queue']}"
        fifo = queue.endswith(".fifo")

        def send(part: PushDelivery, texts: Sequence[str]) -> list[_Refusal]:
            entries: Any = [
                {"Id": str(index), "MessageBody": text, **(_fifo_fields(part, index) if fifo else {})}
                for index, text in enumerate(texts)
            ]
            answer = queues.send_message_batch(QueueUrl=queue, Entries=entries)
            return [
                _Refusal(int(failed["Id"]), failed["Code"], not failed["SenderFault"])
                for failed in answer.get("Failed", [])
            ]

        return _in_chunks(delivery, _QUEUE_BYTES, target.timeout_seconds, send)

    def _publish(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        def put(part: PushDelivery, texts: Sequence[str]) -> list[_Refusal]:
            return self._put(target, MESSAGE_EVENT, texts)

        return _in_chunks(delivery, _BUS_BYTES, target.timeout_seconds, put)

    def _put(self, target: PushTarget, kind: str, details: Sequence[str]) -> list[_Refusal]:
        buses: EventBridgeClient = self._client("events", target, _READ_SECONDS)
        entries: Any = [
            {"Source": SOURCE, "DetailType": kind, "Detail": detail, "EventBusName": target.address}
            for detail in details
        ]
        codes = [entry.get("ErrorCode", "") for entry in buses.put_events(Entries=entries)["Entries"]]
        return [_Refusal(i, code, code not in _MALFORMED) for i, code in enumerate(codes) if code]

    def _client(self, service: str, target: PushTarget, read_seconds: int) -> Any:
        match = _ARNS[target.kind].fullmatch(target.address)
        assert match is not None, target.address  # ``check`` lets no other in
        key = service, match["region"], read_seconds
        with self._lock:
            if key not in self._clients:
                config = Config(
                    retries={"mode": "standard", "total_max_attempts": 1},
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=read_seconds,
                    max_pool_connections=_CONNECTIONS,
                )
                self._clients[key] = make_client(
                    service, config, region=match["region"], endpoint_url=self._endpoint_url
                )
            return self._clients[key]


def _refused(target: PushTarget, subject: str) -> str:
    return f"this deployment may not push messages of {subject} to {target.address[:200]}"


def _fifo_fields(delivery: PushDelivery, index: int) -> dict[str, str]:
    """Returns the fields by which a FIFO queue keeps the messages of a key in order, and drops repeats."""
    message = delivery.messages[index]
    key = message.key or f"queue-{message.queue}"
    # The name of a message group may have fewer characters than a key.
    name = "".join(c if (c.isalnum() and c.isascii()) or c in _FIFO_CHARACTERS else "_" for c in key)[:128]
    return {"MessageGroupId": name, "MessageDeduplicationId": delivery.part([message]).id}


def _asked(delivery: PushDelivery, call: Callable[[], Outcome]) -> Outcome:
    """Returns the outcome of a call. If its answer is lost, all messages have failed, as the target may have them."""
    try:
        return call()
    except _NOT_CONNECTED as error:
        return unreached(str(error))
    except LOST_ANSWERS as error:
        return failure(delivery, f"no answer: {error}")
    except ClientError as error:
        if error_code(error) in _TOO_LARGE:
            return Outcome(too_large=True, error=str(error))
        return unreached(str(error), answered=error_code(error) in _ABOUT_MESSAGES)
    except FOREIGN as error:
        return unreached(str(error))


def _in_chunks(delivery: PushDelivery, limit: int, seconds: float, send: Send) -> Outcome:
    """Sends each message as an entry of its own, several in a call. ``send`` makes a call and returns the entries that
    the target refused. Begins no call after ``seconds``: the outcome lists the messages that are left as untouched."""
    until = monotonic() + seconds
    texts = [_text(message) for message in delivery.messages]
    sent = _SentChunks(texts, limit)
    for chunk in _chunks(texts, limit):
        if monotonic() >= until:
            sent.leave(chunk, sent.error or "the time of the delivery was over")
            continue
        part = delivery.part([delivery.messages[index] for index in chunk])
        outcome = _sent(part, [texts[index] for index in chunk], send)
        if outcome.unreached and not sent.reached:
            return outcome
        sent.add(chunk, outcome)
    return sent.outcome()


class _SentChunks:
    """Collects what became of the messages of a delivery that are sent in several calls. A message over the limit of
    the target is dead."""

    def __init__(self, texts: Sequence[str], limit: int) -> None:
        self._dead = frozenset(index for index, text in enumerate(texts) if _size(text) > limit)
        self.error = "a message is too large for the target" if self._dead else ""
        self.reached = bool(self._dead)
        """Whether anything is known about a message: then the delivery has an outcome of its own."""
        self._failed: set[int] = set()
        self._untouched: set[int] = set()

    def add(self, chunk: list[int], outcome: Outcome) -> None:
        """Adds the outcome of the call with the messages at these indexes."""
        if outcome.unreached:
            self.leave(chunk, outcome.error or self.error)
            return
        self.reached = True
        self._failed.update(chunk if outcome.too_large else [chunk[index] for index in outcome.failed])
        self.error = outcome.error or self.error

    def leave(self, chunk: list[int], error: str) -> None:
        """Leaves the messages at these indexes for a later delivery."""
        self._untouched.update(chunk)
        self.error = error

    def outcome(self) -> Outcome:
        return Outcome(
            failed=frozenset(self._failed), dead=self._dead, untouched=frozenset(self._untouched), error=self.error
        )


def _sent(part: PushDelivery, texts: Sequence[str], send: Send) -> Outcome:
    def call() -> Outcome:
        refused = send(part, texts)
        codes = ", ".join(sorted({refusal.code for refusal in refused}))
        if len(refused) == len(texts) and all(refusal.passing for refusal in refused):
            return unreached(f"the target refused all: {codes}")
        return Outcome(
            failed=frozenset(refusal.message for refusal in refused),
            error=f"the target refused {len(refused)} of {len(texts)}: {codes}" if refused else "",
        )

    return _asked(part, call)


def _chunks(texts: Sequence[str], limit: int) -> Iterator[list[int]]:
    """Yields the indexes of the texts that fit into a call together; leaves out texts that are too large alone."""
    chunk: list[int] = []
    chunk_size = 0
    for index, size in enumerate(map(_size, texts)):
        if size > limit:
            continue
        if chunk and (len(chunk) == _ENTRIES or chunk_size + size > limit):
            yield chunk
            chunk, chunk_size = [], 0
        chunk.append(index)
        chunk_size += size
    if chunk:
        yield chunk


def _text(message: Message) -> str:
    """Returns the message as JSON, in which the two characters that SQS refuses are escaped."""
    return _encoder.encode(message).decode().replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _size(text: str) -> int:
    return len(text.encode()) + _ENTRY_BYTES
