"""Serves the HTTP API within the process: the functions of the server on a deployment in memory, without sockets."""

import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import msgspec
from aws_lambda_powertools import Logger
from greenlet import getcurrent, greenlet

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.api.ack import ack
from hourwheel.api.boundary import Boundary, log_line
from hourwheel.api.events import Function
from hourwheel.api.meta import meta
from hourwheel.api.problems import problem
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.router import Match, Router, make_event
from hourwheel.apps.testing.clock import CountedIds, SimulatedClock, SimulatedTimers
from hourwheel.apps.testing.source import AsyncSteppedSource, SteppedOptions, SteppedSource
from hourwheel.client.api import Api
from hourwheel.client.in_process import AsyncMessageSource, MessageSource, Work
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.transport.endpoint import Reply
from hourwheel.context import Context, Settings
from hourwheel.delay.wheel import WheelEnd
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.messages import AddressedMessage, NewMessage, SendResult
from hourwheel.model.pulls import CompactPullResult, PullRequest, PullResult, Settled, Settlement
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.stored_batches import StoredBatch

Steps: TypeAlias = Generator[Coroutine[Any, Any, None], None, int]
"""Runs handlers, yields each coroutine that the caller has to await, and returns the number of messages that were
handled."""

_FUNCTIONS: dict[str, Function] = {"produce": produce, "pull": pull, "ack": ack, "meta": meta}
_LEASES = "leases"  # in place of a bucket: leases may end at this time
_BUSY_SECONDS = 1.0  # the pause before a wheel whose bucket another wheel holds is started again


def _pause(seconds: float) -> bool:
    """Lets a wheel wait: switches to ``turn_wheels``, which switches back when the time is over."""
    parent = getcurrent().parent
    assert parent is not None
    return seconds <= 0 or bool(parent.switch(seconds))


class NoWaiting:
    """Implements ``Wakeups``: a pull answers at once, as nobody else could send while it waits."""

    def announce(self, subject: str, group: str | None = None) -> None:
        pass

    def announcements(self, subject: str) -> int:
        return 0

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        return False


class Accepted(NamedTuple):
    """Holds a message that the cell accepted, its result, and the time."""

    subject: str
    message: NewMessage
    result: SendResult
    at_ms: int


class RecordingDeployment(Deployment):
    """Records each accepted message, in order. Sets a timer for each time at which a lease may end, so that
    ``Queue.advance`` stops there."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.accepted: list[Accepted] = []
        self._answers: set[tuple[object, ...]] = set()

    def pull(self, subject: str, group: str, request: PullRequest, *, pushing: bool = False) -> PullResult:
        pulled = super().pull(subject, group, request, pushing=pushing)
        if pulled.pulls:
            self._set_lease_timer(request.lease_seconds)
        return pulled

    def pull_blocks(self, subject: str, group: str, request: PullRequest) -> CompactPullResult:
        pulled = super().pull_blocks(subject, group, request)
        if pulled.pulls:
            self._set_lease_timer(request.lease_seconds)
        return pulled

    def settle(self, subject: str, group: str, settlements: list[Settlement]) -> list[Settled]:
        for settlement in settlements:
            if settlement.extend_seconds is not None:
                self._set_lease_timer(settlement.extend_seconds)
        return super().settle(subject, group, settlements)

    def _set_lease_timer(self, seconds: int) -> None:
        self.context.timers.at(self.context.clock.now_ms() + seconds * 1_000, _LEASES)

    def store_batch(
        self,
        subject: str,
        messages: Sequence[NewMessage],
        idempotency: IdempotencyKey | None = None,
        *,
        create: bool = True,
    ) -> StoredBatch:
        stored = super().store_batch(subject, messages, idempotency, create=create)
        self._record([subject] * len(messages), messages, stored)
        return stored

    def store_many(
        self,
        messages: Sequence[AddressedMessage],
        idempotency: IdempotencyKey | None = None,
        *,
        create: bool = True,
    ) -> StoredBatch:
        stored = super().store_many(messages, idempotency, create=create)
        self._record([message.subject for message in messages], messages, stored)
        return stored

    def take_over(self, before: "RecordingDeployment") -> None:
        """Keeps what the deployment before has recorded."""
        self.accepted, self._answers = before.accepted, before._answers

    def _record(self, subjects: list[str], messages: Sequence[NewMessage], stored: StoredBatch) -> None:
        now_ms = self.context.clock.now_ms()
        results = self.send_results(stored)
        for subject, message, result in zip(subjects, messages, results, strict=True):
            answer = (subject, *msgspec.structs.astuple(result))
            if answer not in self._answers:  # a repeated batch gets its first answer
                self._answers.add(answer)
                self.accepted.append(Accepted(subject, message, result, now_ms))


class MemoryServer:
    """Answers requests, turns wheels when their time has come, and runs the handlers of consumers."""

    def __init__(self, url: str, now_ms: int) -> None:
        self._url = url
        self.clock = SimulatedClock(now_ms)
        self.timers = SimulatedTimers()
        self.clock.meanwhile = self.turn_wheels
        self._store, self._blobs, self._ids = MemoryStore(), MemoryBlobs(), CountedIds()
        self._start()
        self._router = Router()
        self._requests = count(1)
        self._works: list[Callable[[], Work | None]] = []
        self.sources: list[SteppedSource] = []
        self._left: int | None = None
        self._wheels: dict[str, greenlet] = {}
        self._thread = threading.get_ident()

    def _start(self) -> None:
        """Starts a deployment on the store."""
        self.deployment = RecordingDeployment(
            Context(
                store=self._store,
                blobs=self._blobs,
                clock=self.clock,
                ids=self._ids,
                wakeups=NoWaiting(),
                meter=CountingMeter(),
                timers=self.timers,
                wheel_wakeups=self.timers,
                # Wheels wait for due times, not for ticks; changes of subjects and groups hold at once.
                settings=Settings(tick_ms=0, registry_seconds=0),
            )
        )
        self.deployment.prepare()
        # WARNING: the log of each request would fill the output of tests.
        logger = Logger(service="hourwheel.testing", level="WARNING", stream=sys.stderr, json_serializer=log_line)
        self._boundary = Boundary(self.deployment, logger)

    def _start_again(self) -> None:
        """Goes on after an interrupt as after the death of a server: another deployment takes over the store, because
        locks of the first one may be held for ever."""
        before = self.deployment
        self._start()
        self.deployment.take_over(before)
        for bucket in self._wheels:
            self.timers.at(self.clock.ms, bucket)
        self._wheels.clear()

    @contextmanager
    def _uninterrupted(self) -> Iterator[None]:
        """Starts another deployment if an interrupt ends the block."""
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self._start_again()
            raise

    def sweep(self) -> None:
        with self._uninterrupted():
            self.deployment.sweeper.sweep()

    def connect(self) -> "MemoryServer":
        return self

    def close(self) -> None:
        """Does nothing: other clients go on using the server."""

    def source(self, options: PrefetchOptions[Any]) -> MessageSource:
        return self._stepped(options)

    def async_source(self, options: PrefetchOptions[Any]) -> AsyncMessageSource:
        return AsyncSteppedSource(self._stepped(options))

    def _stepped(self, options: PrefetchOptions[Any]) -> SteppedSource:
        chosen = SteppedOptions(
            options.subject, options.group, options.consumer_id, options.max_messages, options.lease_seconds
        )
        api = Api(self._url, ids=self.deployment.context.ids, clock=self.clock)
        self.sources.append(SteppedSource(chosen, api, self.clock, self._count))
        return self.sources[-1]

    def joined(self, work: Callable[[], Work | None]) -> None:
        self._works.append(work)

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply:
        path, _, query = target.partition("?")
        request_id = f"in-process-{next(self._requests)}"
        match = self._router.find(method, path)
        if isinstance(match, Match):
            event = make_event(
                match,
                path=path,
                query=query,
                headers=[(name.encode(), text.encode()) for name, text in headers.items()],
                body=body or b"",
                request_id=request_id,
                source="127.0.0.1",
            )
            with self._uninterrupted():
                answer = self._boundary.answer(_FUNCTIONS[match.route.function], event, None)
        else:
            detail = f"no route has the method {method} and the path {path}: see GET /v1/openapi.json"
            answer = problem(404, "route-unknown", detail, instance=request_id)
        reply_headers, reply_body = answer["headers"], answer["body"]
        return Reply(
            answer["statusCode"],
            reply_headers.get("retry-after"),
            None,
            reply_headers.get("content-encoding"),
            reply_headers.get("content-type"),
            reply_body if isinstance(reply_body, bytes) else reply_body.encode(),
        )

    def handle(self, at_most: int, flush: Callable[[], object]) -> Steps:
        """Runs the handlers of all consumers, in the order in which the consumers were made, until no message is left
        for any. Calls ``flush`` before each round. Yields each coroutine that the caller has to await. Returns the
        number of messages. Raises ``RuntimeError`` after ``at_most`` messages."""
        self._left = at_most
        try:
            while (yield from self._round(flush)):
                pass
            return at_most - self._left
        finally:
            self._left = None

    def _round(self, flush: Callable[[], object]) -> Generator[Coroutine[Any, Any, None], None, bool]:
        """Runs the handlers of each consumer once, and returns whether any message was handled."""
        flush()
        self.turn_wheels()
        handed = self._handed
        # A handler may make another consumer meanwhile, whose turn comes in the next round.
        for work, source in zip(self._works, list(self.sources), strict=False):
            if (run := work()) is not None and (coroutine := run()) is not None:
                yield coroutine
            if source.failure is not None:
                raise source.failure
        return self._handed > handed

    @property
    def _handed(self) -> int:
        return sum(source.handed for source in self.sources)

    def turn_wheels(self) -> None:
        """Turns the wheels whose time has come, each until it waits. Does nothing on another thread than that of the
        test: a greenlet that waits can go on only on the thread that started it."""
        if threading.get_ident() != self._thread:
            return
        due = self.timers.due(self.clock.ms)
        with self._uninterrupted():
            try:
                while due:
                    self._turn(due[0])
                    due.pop(0)
            finally:
                for bucket in due:
                    self.timers.at(self.clock.ms, bucket)

    def _turn(self, bucket: str) -> None:
        if bucket == _LEASES:
            self.deployment.sweeper.end_busy_leases()
            return
        wheel = self._wheels.get(bucket)
        if wheel is None:
            wheel = self._wheels[bucket] = greenlet(partial(self.deployment.turn_wheel, bucket, "testing", _pause))
        wheel.parent = getcurrent()
        # A greenlet is false before its start; later, ``_pause`` returns the True. The wheel returns the seconds of
        # its pause, or its ``WheelEnd``.
        pause_seconds = wheel.switch() if not wheel else wheel.switch(True)
        if wheel.dead:
            del self._wheels[bucket]
            pause_seconds = _BUSY_SECONDS if pause_seconds is WheelEnd.BUSY else None
        if pause_seconds is not None:
            self.timers.at(self.clock.ms + max(1, round(pause_seconds * 1_000)), bucket)

    def _count(self) -> None:
        if self._left is None:
            return
        if self._left <= 0:
            raise RuntimeError("the handlers do not come to an end: does one send to its own subject without a delay?")
        self._left -= 1
