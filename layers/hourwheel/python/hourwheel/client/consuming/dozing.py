"""Lets a consumer wait for messages at a queue of SQS, so that no Lambda function runs while it waits.

A server on AWS names the queue in its answer to a pull without messages. The consumer receives from the queue itself,
20 s at a time, with the credentials that sign its pulls, and pulls when a wake-up comes. It also pulls every six
minutes, because a wake-up may be lost.
"""

import logging
import re
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hourwheel.client.errors import AnswerError, Closed
from hourwheel.client.transport.connections import Connections
from hourwheel.client.transport.endpoint import Endpoint, Reply, is_loopback
from hourwheel.client.transport.signing import Signer
from hourwheel.client.transport.steps import Steps
from hourwheel.model.pulls import WakeupQueue
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")

_POLL_SECONDS = 20  # the longest wait of SQS
_LONGEST_IDLE_SECONDS = 31_536_000.0  # a year, the most that a server accepts
_TIMEOUT_SECONDS = 10.0
"""SQS answers within milliseconds after the wait. A request that has no answer this long after the wait has failed."""

_FAILED_SECONDS = 5.0
"""The pause between a failed request to SQS and the next pull, whose answer names the queue anew."""

_REFUSED_SECONDS = 600.0
"""A consumer without the right to receive waits in its pulls for this long and then tries the queue again, as an
operator may have granted the right."""

_KEPT_SECONDS = 60.0  # the retention of a wake-up queue: SQS removes an older wake-up

_GIVING_BACK = "ChangeMessageVisibility"
_GIVING_BACK_SECONDS = 2.0  # the longest wait for SQS of a consumer that stops: the sweeper would wake the group too

_SQS = re.compile(r"([a-z0-9-]+\.)?sqs\.[a-z0-9-]+\.amazonaws\.com(\.cn)?")
_MISSING = ("QueueDoesNotExist", "NonExistentQueue")  # the JSON protocol of SQS and its older one name the error so
_DENIED = ("AccessDenied", "AccessDeniedException", "InvalidClientTokenId", "UnrecognizedClientException")


class WaitResult(Enum):
    """The result of one call that receives from a wake-up queue."""

    WAKEUP = auto()
    NOTHING = auto()
    MISSING = auto()  # the queue does not exist: the next pull says so, and the server creates it
    REFUSED = auto()  # the identity has no right to receive
    FAILED = auto()  # SQS did not answer, or answered with another error


class _Fault(msgspec.Struct):
    kind: str = msgspec.field(name="__type", default="")


class _Message(msgspec.Struct):
    handle: str = msgspec.field(name="ReceiptHandle", default="")


class _Messages(msgspec.Struct):
    messages: list[_Message] = msgspec.field(name="Messages", default_factory=list)


class WaitAnswer(NamedTuple):
    """The result of one call that receives from a wake-up queue. ``handle`` names the wake-up that came."""

    result: WaitResult
    handle: str = ""


class QueueRequest:
    """Makes the signed requests to one wake-up queue. Raises ``ValueError`` unless the URL of the queue is one of SQS,
    or has the ``host`` of the server: a server must not be able to direct signed requests to other hosts. Also raises
    ``ValueError`` for plain HTTP, except on a loopback host, because the network could read the session token."""

    def __init__(self, queue: WakeupQueue, signer: Signer, host: str) -> None:
        parts = urlsplit(queue.url)
        if not _SQS.fullmatch(parts.hostname or "") and parts.hostname != host:
            raise ValueError(f"{queue.url} is no queue of SQS")
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise ValueError(f"the URL of a wake-up queue must begin with https://, got {queue.url}")
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.endpoint = _endpoint(self.origin)
        self._queue = queue
        self._signer = signer

    def headers(self, data: bytes, action: str = "ReceiveMessage") -> dict[str, str]:
        """Returns the headers of a request that is signed now. May wait for the source of the credentials."""
        fields = {"content-type": "application/x-amz-json-1.0", "x-amz-target": f"AmazonSQS.{action}"}
        return self._signer.signed("POST", f"{self.origin}/", data, fields, service="sqs", region=self._queue.region)

    def body(self, seconds: float) -> bytes:
        # Receives all wake-ups at once: one is enough, and each one left would cause a pull without messages.
        request = {"QueueUrl": self._queue.url, "WaitTimeSeconds": int(seconds), "MaxNumberOfMessages": 10}
        return msgspec.json.encode(request)

    def giving_back(self, handle: str) -> bytes:
        """Returns the body of the request that makes a wake-up visible to the next consumer at once."""
        return msgspec.json.encode({"QueueUrl": self._queue.url, "ReceiptHandle": handle, "VisibilityTimeout": 0})


@lru_cache(maxsize=4)
def _endpoint(origin: str) -> Endpoint:
    """Returns the endpoint of an origin, made once: reading the certificates takes 10 ms or more."""
    return Endpoint(origin)


def received(reply: Reply) -> WaitAnswer:
    """Returns the result of a call, from the answer of SQS."""
    try:
        if reply.status == 200:
            messages = msgspec.json.decode(reply.body or b"{}", type=_Messages).messages
            return WaitAnswer(WaitResult.WAKEUP, messages[0].handle) if messages else WaitAnswer(WaitResult.NOTHING)
        kind = msgspec.json.decode(reply.body, type=_Fault).kind.rpartition("#")[2]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        kind = ""
    if kind.endswith(_MISSING):
        return WaitAnswer(WaitResult.MISSING)
    return WaitAnswer(WaitResult.REFUSED if kind in _DENIED or reply.status == 403 else WaitResult.FAILED)


class HeldWakeup(NamedTuple):
    """A wake-up that a consumer has received. If this consumer stops, another one has to receive the wake-up."""

    request: QueueRequest
    handle: str
    until: float
    """When SQS removes the wake-up."""


def _check_given_back(reply: Reply) -> None:
    """Logs that SQS refused to make a wake-up visible again, for example because a policy lacks this right."""
    if reply.status != 200:
        _log.debug("a wake-up was not given back: SQS answered %d", reply.status)


class Doze:
    """Keeps the state of one consumer that may wait at a queue: since when it has been idle, and what its next pull
    says about that. Not thread-safe."""

    def __init__(self, signer: Signer | None, host: str, now: Callable[[], float] = time.monotonic) -> None:
        self._signer = signer
        self._host = host
        self._now = now
        self._idle_since = now()
        self._refused_until = 0.0
        self._wakeup = "able"
        self._held: HeldWakeup | None = None

    def fields(self) -> dict[str, Any]:
        """Returns the fields by which the next pull asks for a wake-up queue; none if the identity cannot use one."""
        if self._signer is None or self._now() < self._refused_until:
            return {}
        idle_seconds = min(self._now() - self._idle_since, _LONGEST_IDLE_SECONDS)
        return {"idle_seconds": round(idle_seconds, 3), "wakeup": self._wakeup}

    def answered(self, brought: bool) -> None:
        """Records the answer to a pull, and whether it ``brought`` messages."""
        self._wakeup = "able"
        if brought:
            self._idle_since = self._now()

    def begin(self, queue: WakeupQueue) -> "Waiting | None":
        """Returns the wait at the queue; None if its URL is refused: then pulls wait at the server for ten minutes."""
        assert self._signer is not None
        self._held = None  # the server has found no message, so no other consumer needs the wake-up
        try:
            return Waiting(QueueRequest(queue, self._signer, self._host), self._now() + queue.wait_seconds, self._now)
        except ValueError as error:
            self._give_up(str(error))
            return None

    def ended(self, waiting: "Waiting") -> None:
        """Records the last result of a wait. Without the right to receive, pulls wait at the server for ten minutes."""
        last = waiting.last
        if waiting.handle:
            self._held = HeldWakeup(waiting.request, waiting.handle, self._now() + _KEPT_SECONDS)
        if last is WaitResult.REFUSED:
            self._give_up(
                "the identity lacks the right sqs:ReceiveMessage on the wake-up queue of its group, which the policy of"
                " `hourwheel policy consumer` grants"
            )
        self._wakeup = {WaitResult.WAKEUP: "woken", WaitResult.MISSING: "missing"}.get(last, "able")

    def given_back(self) -> HeldWakeup | None:
        """Returns the wake-up that a stopping consumer has to give back; None if it has none, or SQS has removed it."""
        held, self._held = self._held, None
        return held if held is not None and self._now() < held.until else None

    def _give_up(self, reason: str) -> None:
        self._refused_until = self._now() + _REFUSED_SECONDS
        _log.warning(
            "pulls wait at the server for messages, which costs more than waiting at a queue: %s", shown(reason)
        )


class Waiting:
    """One wait at a queue, made of several requests, of at most 20 s each."""

    def __init__(self, request: QueueRequest, until: float, now: Callable[[], float]) -> None:
        self.request = request
        self._until = until
        self._now = now
        self.last = WaitResult.NOTHING
        self.handle = ""

    def next_seconds(self) -> int | None:
        """Returns the seconds for which the next request waits; None when it is time to pull."""
        left_seconds = self._until - self._now()
        if self.last is not WaitResult.NOTHING or left_seconds < 1:  # SQS waits for whole seconds
            return None
        return int(min(_POLL_SECONDS, left_seconds))

    def answered(self, reply: Reply) -> None:
        self.last, self.handle = received(reply)

    def failed(self, error: AnswerError) -> None:
        """Records a request without an answer."""
        self.last = WaitResult.FAILED

    @property
    def pause_seconds(self) -> float:
        """The seconds before the next pull: after a wait to its end, the fraction of a second for which SQS cannot
        wait."""
        if self.last is WaitResult.NOTHING:
            return max(0.0, self._until - self._now())
        return _FAILED_SECONDS if self.last is WaitResult.FAILED else 0.0


class QueueListener:
    """Waits at wake-up queues. Its methods are steps, for a thread or a task. ``connect`` makes the connections of
    either, ``sign`` the headers of a request: the source of the credentials may take seconds to answer."""

    def __init__(self, connect: Callable[..., Any] = Connections, sign: Callable[..., Any] = QueueRequest.headers):
        self._connect = connect
        self._sign = sign
        self._closed = False
        self._connections: tuple[str, Any] | None = None

    def wait(self, waiting: Waiting) -> Steps[None]:
        """Waits until a wake-up comes or the wait is over. Returns at once after ``close``."""
        while not self._closed and (seconds := waiting.next_seconds()) is not None:
            data = waiting.request.body(seconds)
            try:
                headers = yield self._sign(waiting.request, data)
                connections = self._at(waiting.request)
                if not self._closed:  # otherwise ``close`` found no connection to cut
                    waiting.answered((yield connections.exchange("POST", "/", data, headers, extra_seconds=seconds)))
            except Closed:
                return
            except AnswerError as error:
                waiting.failed(error)

    def give_back(self, held: HeldWakeup | None) -> Steps[None]:
        """Makes a wake-up visible to the next consumer. Never fails: if SQS refuses, the sweeper wakes the group within
        about a minute."""
        if held is None:
            return
        data = held.request.giving_back(held.handle)
        connections = self._connect(held.request.endpoint, timeout_seconds=_GIVING_BACK_SECONDS)
        try:
            headers = yield self._sign(held.request, data, _GIVING_BACK)
            _check_given_back((yield connections.exchange("POST", "/", data, headers)))
        except AnswerError as error:
            _log.debug("a wake-up was not given back: %s", shown(str(error)))
        finally:
            yield connections.close()

    def close(self) -> Steps[None]:
        """Cuts the wait, from any thread."""
        self._closed = True
        if self._connections is not None:
            yield self._connections[1].close()

    def _at(self, request: QueueRequest) -> Any:
        if self._connections is None or self._connections[0] != request.origin:
            self._connections = (request.origin, self._connect(request.endpoint, timeout_seconds=_TIMEOUT_SECONDS))
        return self._connections[1]
