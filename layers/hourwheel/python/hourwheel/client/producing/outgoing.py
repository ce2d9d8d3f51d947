"""Sends the batches of several callers in one request, and splits the request where the server refuses a part of it."""

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from hourwheel.client.calls.produce import ProduceCalls
from hourwheel.client.errors import (
    AnswerError,
    BadRequest,
    ClientError,
    Closed,
    Conflict,
    DeliveryTimeout,
    NotFound,
    Problem,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
)
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.client.transport.backoff import Outage, pause_seconds
from hourwheel.client.transport.steps import Steps, finished
from hourwheel.ports.machine import Ids
from hourwheel.wire.words import counted, shown

_log = logging.getLogger("hourwheel.producer")

_CULPRIT = re.compile(r"messages\[(\d+)\]")

# Refusals, beside those for size, that one message of a request may cause for all of it. Others concern the whole
# request (the subject's name, the token), so splitting the request would only repeat the refusal.
_OF_ONE_MESSAGE = {"field-invalid", "json-invalid", "delay-too-long"}

_FOR_NOW = (Unauthorized, NotFound, Conflict)
"""Refusals that say nothing about an earlier try: the token, the subject or its settings may have changed since. A
refusal of the content holds for every try."""


class SharedBatch(Protocol):
    """Holds the messages of one caller, which are stored together or not at all. ``done`` is true once the caller has
    its answer, or no longer waits for it."""

    @property
    def messages(self) -> Sequence[Message]: ...
    @property
    def give_up_at(self) -> float: ...
    @property
    def done(self) -> bool: ...
    def accept(self, results: Sequence[SendResult]) -> None: ...
    def fail(self, error: Exception) -> None: ...


B = TypeVar("B", bound=SharedBatch)

NO_ROOM = (
    "no room for the message in time: the server is too slow or unavailable, so the producer holds as many messages as"
    " max_pending_messages and max_pending_bytes allow"
)
NOT_SENT = "the messages were not sent in time, and none of them is stored: the server is too slow or unavailable"
NOT_ACCEPTED = "the messages were not accepted in time; they may be stored or not"
REPEATED_IN_VAIN = "the messages may be stored or not: an earlier try got no answer, and the next was refused"
NOT_STORED = "the messages were not accepted in time, and none of them is stored"


class RequestContext(NamedTuple):
    """Holds what all requests of a producer use. ``pause`` waits for this many seconds, in a thread or in a task."""

    calls: ProduceCalls
    ids: Ids
    pause: Callable[[float], Any]
    outage: Outage
    create: bool
    """Whether a request creates a subject that is missing."""


class Attempt(NamedTuple):
    """The messages of one try, and the idempotency key under which every try of the request sends them."""

    messages: Sequence[Message]
    idempotency_key: str
    repeated: bool
    """Whether an earlier try may have stored the messages."""


class RequestParts(Generic[B]):
    """Decides what a request of several callers sends next, and settles their batches. Does no input or output.

    A request is repeated unchanged, under one idempotency key. Where the server refuses it because of one message, the
    batches of the other callers are sent without it, in their order. A batch whose time is over fails alone, and the
    request that it shares goes on for the others.
    """

    def __init__(self, ids: Ids, batches: Sequence[B]) -> None:
        self._ids = ids
        self._parts: deque[Sequence[B]] = deque([batches])
        self._begin_part()

    def _begin_part(self) -> None:
        self._key: str | None = None
        self._may_be_stored = False
        self._is_open = False  # whether the outcome of the last try was not recorded
        self._attempt = 0
        self.pause_seconds = 0.0

    @property
    def left(self) -> bool:
        """Whether a part of the request is not done."""
        return bool(self._parts)

    def unfinished(self) -> Iterator[B]:
        """Yields the batches that are not done: their callers wait."""
        return (batch for part in self._parts for batch in part if not batch.done)

    def attempt(self, now: float) -> Attempt | None:
        """Returns what to send after the pause. Returns None if the part at hand needs no request any more; then the
        caller asks again, while parts are ``left``."""
        part = self._parts[0]
        if self._key is None:
            part = self._parts[0] = self._still_wanted(part, now)
            self._key = self._ids.token().hex()  # a request that is repeated keeps its batches, and so its key
        if all(batch.done for batch in part):
            self._next_part()
            return None
        messages = part[0].messages if len(part) == 1 else [message for batch in part for message in batch.messages]
        self._may_be_stored |= self._is_open  # an interrupt ended the call of the thread that sent before
        self._is_open = True
        return Attempt(messages, self._key, self._may_be_stored)

    def accepted(self, attempt: Attempt, results: list[SendResult], now: float) -> None:
        """Records the answer to an attempt: each batch of the part gets its results."""
        if len(results) != len(attempt.messages):
            counts = f"{counted(len(results), 'result')} for {counted(len(attempt.messages), 'message')}"
            self.failed(ClientError(f"the server answered {counts}"), now)
            return
        self._accept(self._parts[0], results)
        self._next_part()

    def failed(self, error: Exception, now: float) -> None:
        """Records the error of an attempt: pauses, splits the part or fails its batches. Takes errors of any kind,
        because a caller whose error was not recorded would wait for ever."""
        part = self._parts[0]
        self._is_open = False
        if isinstance(error, ServerUnavailable):
            # A request that was sent and not answered may be stored under its key.
            self._may_be_stored |= error.sent
            self._pause(part, error, now)
            return
        # A part that was split would be sent under other keys, under which the server would store messages again.
        if self._may_be_stored and (len(part) > 1 or isinstance(error, _FOR_NOW)):
            refusal, error = error, DeliveryTimeout(f"{REPEATED_IN_VAIN}: {error}")
            error.__cause__ = refusal
        if len(part) > 1 and _may_concern_one(error):
            problem = error.problem if isinstance(error, BadRequest | TooLarge) else Problem()
            self._next_part(split(part, problem))
            return
        for batch in part:
            batch.fail(error)
        self._next_part()

    def _still_wanted(self, part: Sequence[B], now: float) -> list[B]:
        """Returns the batches whose callers still wait, after failing those whose time is over."""
        for batch in part:
            if now >= batch.give_up_at:
                batch.fail(DeliveryTimeout(NOT_SENT))
        return [batch for batch in part if not batch.done]

    def _accept(self, part: Sequence[B], results: list[SendResult]) -> None:
        if len(part) == 1:
            part[0].accept(results)
            return
        start = 0
        for batch in part:
            end = start + len(batch.messages)
            batch.accept(results[start:end])
            start = end

    def _pause(self, part: Sequence[B], error: ServerUnavailable, now: float) -> None:
        """Sets the pause before the next try, and fails the batches whose time is over by then."""
        self.pause_seconds = pause_seconds(self._attempt, self._ids, at_least_seconds=error.retry_after_seconds)
        self._attempt += 1
        for batch in part:
            if now + self.pause_seconds >= batch.give_up_at and not batch.done:
                late = DeliveryTimeout(f"{NOT_ACCEPTED if self._may_be_stored else NOT_STORED}: {error}")
                late.__cause__ = error
                batch.fail(late)
        if all(batch.done for batch in part):
            self._next_part()

    def _next_part(self, instead: Sequence[Sequence[B]] = ()) -> None:
        self._parts.popleft()
        self._parts.extendleft(reversed([part for part in instead if part]))
        self._begin_part()


class OutgoingRequest(Generic[B]):
    """Sends the batches of several callers to one subject: as one request, unless the server refuses it.

    One thread at a time calls ``run``. After its call another thread may call it and continue the request. A task
    awaits the steps of ``sending``.
    """

    def __init__(self, context: RequestContext, subject: str, batches: Sequence[B]) -> None:
        self._context = context
        self._subject = subject
        self._parts = RequestParts(context.ids, batches)

    def run(self, own: B | None = None) -> None:
        """Sends the batches until all of them are done, or ``own`` is."""
        finished(self.sending(own))

    def sending(self, own: B | None = None) -> Steps[None]:
        """Does what ``run`` does, in steps for a thread or a task."""
        parts, context = self._parts, self._context
        while parts.left and not (own is not None and own.done):
            if parts.pause_seconds:
                yield context.pause(parts.pause_seconds)
            attempt = parts.attempt(time.monotonic())
            if attempt is None:
                continue
            messages, key, repeated = attempt
            try:
                results = yield context.calls.produce(
                    self._subject,
                    messages,
                    idempotency_key=key,
                    repeated=repeated,
                    retry_seconds=0,
                    create=context.create,
                )
            except Exception as error:
                # Only ``Producer.close`` closes the connections, once its time is over.
                reason = out_of_time(context.outage) if isinstance(error, Closed) else error
                parts.failed(reason, time.monotonic())
                log_failure(context.outage, error, parts.unfinished(), time.monotonic())
            else:
                parts.accepted(attempt, results, time.monotonic())
                log_answer(context.outage, time.monotonic())

    def unfinished(self) -> Iterator[B]:
        """Yields the batches that are not done: their callers wait."""
        return self._parts.unfinished()


def out_of_time(outage: Outage) -> Closed:
    """Returns the error of messages that were not accepted before ``close`` ran out of time. Its text ends with the
    last failure of the server."""
    text = "the time to close the producer ran out before the message was accepted"
    return Closed(text if outage.error is None else f"{text}: {outage.error}")


def log_failure(outage: Outage, error: Exception, unfinished: Iterator[SharedBatch], now: float) -> None:
    """Logs that a request failed and is repeated, unless no caller waits for it or the outage was logged just before.
    A refusal ends the outage: the server answers."""
    if isinstance(error, ServerUnavailable):
        give_up_at = max((batch.give_up_at for batch in unfinished), default=now)
        if give_up_at > now and outage.failed(error, now):
            _log.warning("%s; retrying for %.0f s", shown(str(error)), give_up_at - now)
    elif isinstance(error, AnswerError):
        log_answer(outage, now)


def log_answer(outage: Outage, now: float) -> None:
    """Logs the end of an outage, if there was one."""
    seconds = outage.ended(now)
    if seconds is not None:
        _log.warning("the server answers again, after %.0f s", seconds)


def _may_concern_one(error: Exception) -> bool:
    """Returns whether one message may be the cause, so that the request would pass without it. A ``TooLarge`` may come
    from a proxy, without a slug of Hourwheel; ``TypeError`` and ``ValueError`` come from a message that cannot be
    encoded."""
    if isinstance(error, BadRequest):
        return error.slug in _OF_ONE_MESSAGE
    return isinstance(error, TooLarge | TypeError | ValueError)


def split(part: Sequence[B], problem: Problem) -> list[Sequence[B]]:
    """Returns smaller parts to send in place of a refused part, in order. If the problem names a message, its batch is
    a part alone; otherwise the part is halved."""
    culprit = _CULPRIT.match(problem.field or "")
    message = int(culprit[1]) if culprit else -1
    index = -1 if message < 0 else _batch_of(part, message)
    if 0 <= index < len(part):
        return [part[:index], part[index : index + 1], part[index + 1 :]]
    return [part[: len(part) // 2], part[len(part) // 2 :]]


def _batch_of(part: Sequence[SharedBatch], message: int) -> int:
    """Returns the index of the batch that holds the message with this index in the request; the number of batches if
    none does."""
    for index, batch in enumerate(part):
        message -= len(batch.messages)
        if message < 0:
            return index
    return len(part)
