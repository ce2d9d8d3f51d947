"""Imitates the functions of an account with few executions, behind function URLs, and the SQS of their wake-ups."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

import msgspec

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.api.events import Event, Response
from hourwheel.context import Context, Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.pulls import WakeupQueue
from hourwheel.system import SystemClock, SystemIds
from tests.function_urls import UrlDeployment
from tests.support import HandTimers, ListMeter

T = TypeVar("T")

EXECUTIONS = 10  # of a new account of AWS
FREE_EVERY_SECONDS = 1.0  # while the account is crowded, an execution becomes free for one request this often

_THROTTLED: Response = {
    "statusCode": 429,
    "headers": {"content-type": "application/json", "x-amzn-errortype": "TooManyRequestsException"},
    "body": '{"Reason":"ConcurrentInvocationLimitExceeded","Type":"User","message":"Rate Exceeded."}',
}


class Account:
    """The functions of one deployment. Each execution is a process with caches of its own, as in Lambda. A request
    without a free execution is answered 429. So are most of the others while the account is crowded."""

    def __init__(self, queues: "LoopbackQueues", settings: Settings) -> None:
        self._lock = threading.Condition()
        self._store, self._blobs, self._queues, self._settings = MemoryStore(), MemoryBlobs(), queues, settings
        self._free = [UrlDeployment(self.process()) for _ in range(EXECUTIONS)]
        self._executions = [*self._free]

        self._crowded_since: float | None = None
        self._found = 0
        self.crowd(on=False)
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """The requests to each function while the account was crowded, and those that were answered 429."""

    def process(self) -> Deployment:
        clock = SystemClock()
        return Deployment(
            Context(
                store=self._store,
                blobs=self._blobs,
                clock=clock,
                ids=SystemIds(),
                wakeups=PollingWakeups(clock),
                wakeup_queues=self._queues,
                meter=ListMeter(),
                timers=HandTimers(),
                settings=self._settings,
            )
        )

    @property
    def endpoints(self) -> dict[str, str]:
        return self._executions[0].endpoints

    @endpoints.setter
    def endpoints(self, endpoints: dict[str, str]) -> None:
        for execution in self._executions:
            execution.endpoints = endpoints

    def restart(self) -> None:
        for execution in self._executions:
            execution.restart()

    def crowd(self, *, on: bool) -> None:
        """Lets other functions of the account take nearly all executions, or ends that."""
        with self._lock:
            self._crowded_since, self._found = time.monotonic() if on else None, 0

    def wait_for_refusals(self, *functions: str, seconds: float) -> None:
        """Waits until a request to each of these functions was refused while the account was crowded."""
        with self._lock:
            refused = self._lock.wait_for(lambda: all(self.refused[name] for name in functions), seconds)
            assert refused, self.refused

    def _take(self, name: str) -> UrlDeployment | None:
        """Removes a free execution. Counts the call if the account is crowded."""
        free = bool(self._free)
        if self._crowded_since is not None:
            self.calls[name] += 1
            free = free and self._found < (time.monotonic() - self._crowded_since) // FREE_EVERY_SECONDS
            self._found += free
            self.refused[name] += not free
            self._lock.notify_all()
        return self._free.pop() if free else None

    def respond(self, name: str, event: Event) -> Response:
        with self._lock:
            execution = self._take(name)
        if execution is None:
            return _THROTTLED
        try:
            return execution.respond(name, event)
        finally:
            with self._lock:
                self._free.append(execution)


class LoopbackQueues:
    """``WakeupQueues`` over a stand-in for SQS, at which consumers receive by long polls."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._wakeups: Counter[str] = Counter()
        self._made: set[str] = set()
        self._ended = False
        self.waiting: Counter[str] = Counter()
        """The consumers that wait now, by queue."""
        self.url = ""

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        self._made.add(name)
        return WakeupQueue(f"{self.url}/111122223333/{name}", "eu-west-1")

    def wake(self, name: str) -> bool:
        self._add(name)
        return name in self._made

    def remove(self, name: str) -> None:
        self._made.discard(name)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]

    def wait_for_consumers(self, count: int, seconds: float) -> None:
        """Waits until this many consumers wait at their queues."""
        with self._changed:
            assert self._changed.wait_for(lambda: sum(self.waiting.values()) >= count, seconds), "they do not doze"

    def _add(self, name: str) -> None:
        with self._changed:
            self._wakeups[name] += 1
            self._changed.notify_all()

    def receive(self, name: str, seconds: float) -> dict[str, Any]:
        with self._changed:
            self.waiting[name] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._wakeups[name] or self._ended, seconds)
            self.waiting[name] -= 1
            if not self._wakeups.pop(name, 0):
                return {"Messages": []}
            return {"Messages": [{"Body": "wake", "ReceiptHandle": "h"}]}

    def answer(self, target: str, request: dict[str, Any]) -> dict[str, Any]:
        name = request["QueueUrl"].rpartition("/")[2]
        if target == "AmazonSQS.ChangeMessageVisibility":
            self._add(name)
            return {}
        return self.receive(name, request["WaitTimeSeconds"])

    @contextmanager
    def serving(self) -> Iterator[None]:
        queues = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                answer = queues.answer(self.headers["x-amz-target"], msgspec.json.decode(data))
                sent = msgspec.json.encode(answer)
                self.send_response(200)
                self.send_header("content-length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_request(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Prints nothing: a consumer that stops cuts its request."""

        server = Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()
            server.shutdown()
            thread.join()
            server.server_close()
