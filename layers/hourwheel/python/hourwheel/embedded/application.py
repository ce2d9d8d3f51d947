"""Serves the HTTP API: checks a request, runs its function, and answers."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from itertools import count
from math import ceil
from typing import TypeAlias

from hourwheel.api.ack import ack
from hourwheel.api.events import Event, Function, Response, no_content
from hourwheel.api.meta import meta
from hourwheel.api.problems import problem, problem_of
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.requests import too_large_request
from hourwheel.api.router import Match, Router, check_query, make_event, unknown_path, wrong_method
from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.embedded.browser.console import console_answer, is_console, settings_for
from hourwheel.embedded.credentials.access import OWN_ROUTES, PROBES, Access, Grant, read_only_refusal
from hourwheel.embedded.http.answer_plans import Answerer
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.requests import Disconnected, Request
from hourwheel.embedded.lake import report_answer
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.prometheus import Exporter
from hourwheel.embedded.rates import Rate
from hourwheel.embedded.runtime import Runtime
from hourwheel.embedded.wakeups import Caller
from hourwheel.errors import MemoryFull, Rejected
from hourwheel.model.fields import REQUEST_BYTES

_UNWANTED_BYTES = 1_024  # the longest empty body, for example an object with blanks, of a route that takes none

_IN_GREENLETS = frozenset({"produce", "pull", "ack"})  # functions that compute only shortly: the loop runs them

_TRACE = "GET /v1/subjects/{subject}/messages/{id}"
"""A trace reads up to 256 rows, and a read-only token may ask for any number of traces. One thread serves them all: the
loop waits 5 ms each time for every thread that computes."""

_SETTLED = b"settled"  # a field of the answer to a pull, which has no text of a client if there are no messages
_FULL = "unsent answers and bodies hold as many bytes as they may, and no message was taken: pull again in a moment"

Reply: TypeAlias = Callable[[Answer], None]


class Application:
    """Answers requests. Produce, pull and ack run in greenlets; other functions, which may take long, in threads."""

    def __init__(self, runtime: Runtime, options: ServeOptions) -> None:
        self._runtime = runtime
        self._functions: dict[str, Function] = {
            "produce": produce,
            "pull": pull,
            "ack": ack,
            "meta": meta,
        }
        # Request ids are this name and a count: drawing a random id for each releases the interpreter lock, which costs
        # a tenth of the time of a small request.
        self._name = runtime.deployment.context.ids.unique(runtime.deployment.context.clock.now_ms())
        self._count = count(1)
        self._access = Access(options.tokens, options.read_only_tokens, options.allowed_hosts)
        self._console = options.console
        self._is_open = options.is_open
        self._pulls = Rate(options.group_rate, runtime.deployment.context.clock)
        self._exporter = Exporter(runtime, groups=options.metrics_groups)
        self._router = Router((*ROUTES, *OWN_ROUTES))

    def plan(self, request: Request) -> Answerer | None:
        """Returns how to answer an allowed request to produce, pull or settle without a task; None if ``respond`` has
        to answer the request. Nearly all requests are of these kinds, and a task costs a third of a small one. The
        decision is kept with the head, because a client sends the same head with each of its requests."""
        head = request.head
        if head.length is None or head.length > REQUEST_BYTES:
            return None
        begin: Answerer | None = head.plans.get(request.secure)
        if begin is None:
            begin = head.plans[request.secure] = self._planned(request)
        return begin

    def _planned(self, request: Request) -> Answerer | None:
        grant = self._access.grant(request.headers)
        match = self._router.find(request.method, request.path)
        if not isinstance(match, Match) or match.route.function not in _IN_GREENLETS:
            return None
        secure = request.secure
        if self._access.refusal(grant, request.path, request.headers, secure=secure, request_id="") is not None:
            return None
        # Queries with several parameters are left to ``respond``, which counts them.
        if read_only_refusal(grant, match.route, "") is not None or request.query.count("&"):
            return None
        template = make_event(
            match,
            path=request.path,
            query=request.query,
            headers=request.headers,
            body=b"",
            request_id="",
            source="",
        )
        return partial(self._begin_pull if match.route.function == "pull" else self._begin, match, template)

    def _begin(self, match: Match, template: Event, request: Request, reply: Reply) -> None:
        event = self._event(template, request)
        function = self._functions[match.route.function]

        def work() -> None:
            reply(_answer(self._runtime.boundary.answer(function, event, None)))

        self._runtime.greenlets.spawn(work)

    def _begin_pull(self, match: Match, template: Event, request: Request, reply: Reply) -> None:
        """Begins to answer a pull. Ends its wait when the client leaves, so that no messages are leased to a client
        that is gone."""
        event = self._event(template, request)
        refusal = self._too_fast(match, event["requestContext"]["requestId"])
        if refusal is not None:
            reply(_answer(refusal))
            return
        caller = Caller()
        request.when_left(partial(self._runtime.wakeups.leave, caller))

        def work() -> None:
            reply(_answer(self._serve(caller, event)))

        self._runtime.greenlets.spawn(work)

    def _event(self, template: Event, request: Request) -> Event:
        request_id = f"{self._name}-{next(self._count)}"
        http = template["requestContext"]["http"] | {"sourceIp": request.client}
        context = template["requestContext"] | {"requestId": request_id, "http": http}
        return template | {"body": request.complete_body, "requestContext": context, "hold": request.hold}

    async def respond(self, request: Request) -> Answer:
        """Returns the answer, also to a request that failed. Raises only ``Disconnected``, if the client left before
        its request was complete."""
        request_id = f"{self._name}-{next(self._count)}"
        try:
            response = await self._respond(request, request_id)
        except Disconnected:
            raise
        except Exception as error:
            self._runtime.boundary.report(error, "request failed", correlation_id=request_id)
            response = problem_of(error, request_id)
        return _answer(response)

    async def _respond(self, request: Request, request_id: str) -> Response:
        method, path, headers = request.method, request.path, request.headers
        grant = self._access.grant(headers)
        if self._console and is_console(path):
            return self._console_answer(grant, request, request_id)
        refusal = self._access.refusal(grant, path, headers, secure=request.secure, request_id=request_id)
        if refusal is not None:
            return refusal
        request.trusted = path not in PROBES
        match = self._router.find(method, path)
        if not isinstance(match, Match):
            return _unrouted(match, method, path, request_id)
        refusal = self._early_refusal(match, request, grant, request_id)
        if refusal is not None:
            return refusal
        body = await _body_of(request, match.route)
        if len(body) > REQUEST_BYTES:
            return problem_of(too_large_request(), request_id)
        return await self._served(match, request, body, request_id, grant)

    def _early_refusal(self, match: Match, request: Request, grant: Grant, request_id: str) -> Response | None:
        """Returns why a request is refused before its body is read."""
        refusal = read_only_refusal(grant, match.route, request_id) or self._too_fast(match, request_id)
        if refusal is not None:
            return refusal
        if (request.head.length or 0) > REQUEST_BYTES:
            return problem_of(too_large_request(), request_id)
        try:
            check_query(request.query)
        except Rejected as error:
            return problem_of(error, request_id)
        return None

    def _console_answer(self, grant: Grant, request: Request, request_id: str) -> Response:
        """Returns a file of the console, or its refusal. A server without tokens gives it only to requests at localhost
        or its IP address, as it does with the API."""
        if self._is_open:
            refusal = self._access.refusal(
                grant, request.path, request.headers, secure=request.secure, request_id=request_id
            )
            if refusal is not None:
                return refusal
        settings = settings_for(grant, is_open=self._is_open)
        return console_answer(request.method, request.path, request.headers, settings, request_id)

    async def _served(self, match: Match, request: Request, body: bytes, request_id: str, grant: Grant) -> Response:
        """Returns the answer of the route's function, which runs on the loop, or in a thread if it may take long."""
        if match.route.function == "ready":
            return await self._runtime.readiness.answer(request_id, names=grant is not Grant.NONE)
        if match.route.function == "metrics":
            return await self._in_thread(self._exporter.answer)
        if match.route.function == "report":
            return await self._in_thread(partial(report_answer, self._runtime.lake, request_id))
        event = make_event(
            match,
            path=request.path,
            query=request.query,
            headers=request.headers,
            body=body,
            request_id=request_id,
            source=request.client,
        )
        event["readOnly"] = grant is Grant.READ
        event["unknownCaller"] = grant is Grant.NONE
        if match.route.function in _IN_GREENLETS:
            event["hold"] = request.hold
        if match.route.function == "pull":
            return await self._pull(event, request)
        function = self._functions[match.route.function]
        answer = partial(self._runtime.boundary.answer, function, event, None)
        if match.route.key == _TRACE:
            return await self._in_thread(answer, self._runtime.tracing)
        if match.route.function == "meta":
            return await self._in_thread(answer)
        return await self._runtime.greenlets.run(answer)

    async def _in_thread(self, work: Callable[[], Response], threads: Executor | None = None) -> Response:
        """Returns the answer of a thread, with its body encoded there: for megabytes the loop would take
        milliseconds."""
        return await asyncio.get_running_loop().run_in_executor(
            threads or self._runtime.threads, lambda: _encoded(work())
        )

    def _too_fast(self, match: Match, request_id: str) -> Response | None:
        """Counts a pull, and returns its refusal if the group pulls more often than it may; None for other requests.

        Only pulls have a rate: a refused settlement would cost another delivery.
        """
        if match.route.function != "pull":
            return None
        wait_seconds = self._pulls.wait_seconds((match.parameters["subject"], match.parameters["group"]))
        if not wait_seconds:
            return None
        self._runtime.meter.record("ThrottledPulls", 1)
        retry = {"retry-after": str(ceil(wait_seconds))}
        detail = "the group pulls more often than this server allows: wait, and take more messages at a time"
        return problem(429, "too-many-requests", detail, instance=request_id, headers=retry)

    async def _pull(self, event: Event, request: Request) -> Response:
        """Answers a pull. Ends its wait when the client leaves, so that no messages are leased to a client that is
        gone."""
        caller = Caller()
        request.when_left(partial(self._runtime.wakeups.leave, caller))
        return await self._runtime.greenlets.run(partial(self._serve, caller, event))

    def _serve(self, caller: Caller, event: Event) -> Response:
        if caller.left:
            return no_content()
        with self._runtime.wakeups.serving(caller):
            answer = self._runtime.boundary.answer(pull, event, None)
        # An answer that tells of settlements is sent all the same.
        if caller.refused and _SETTLED not in _encoded(answer)["body"]:
            return problem_of(MemoryFull(_FULL), event["requestContext"]["requestId"])
        return answer


async def _body_of(request: Request, route: HttpRoute) -> bytes:
    """Returns the body of a route that takes one. Of another one it returns as much as shows that it is not empty, so
    that it takes no memory: the function of the route refuses it."""
    if route.body is not None:
        return await request.body()
    if route.query is None:
        request.drop_body()
        return b""
    return await request.body(_UNWANTED_BYTES)


def _encoded(response: Response) -> Response:
    body = response["body"]
    return response if isinstance(body, bytes) else {**response, "body": body.encode()}


def _answer(response: Response) -> Answer:
    return Answer(response["statusCode"], response["headers"], _encoded(response)["body"])


def _unrouted(methods: Iterable[str], method: str, path: str, request_id: str) -> Response:
    allowed = ", ".join(methods)
    if not allowed:
        return problem(404, "route-unknown", unknown_path(path), instance=request_id)
    detail = wrong_method(path, method, methods)
    return problem(405, "method-not-allowed", detail, instance=request_id, headers={"allow": allowed})
