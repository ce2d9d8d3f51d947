"""The HTTP API as an ASGI application: reads a request, runs its function, answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from hourwheel.api.ack import ack
from hourwheel.api.events import Event, Function, Response, no_content
from hourwheel.api.meta import meta
from hourwheel.api.problems import problem, problem_of
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.requests import too_large_request
from hourwheel.api.routes import ROUTES, Route
from hourwheel.embedded.access import Access, header, read_only_refusal
from hourwheel.embedded.arrivals import Caller
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.prometheus import Exporter
from hourwheel.embedded.router import Match, Router, make_event
from hourwheel.embedded.runtime import Runtime
from hourwheel.model import REQUEST_BYTES

Scope: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
Send: TypeAlias = Callable[[dict[str, Any]], Awaitable[None]]

_FUNCTIONS: dict[str, Function] = {"produce": produce, "pull": pull, "ack": ack, "meta": meta}


class Disconnected(Exception):
    """The client went away before its request was complete."""


class Application:
    """Producing, pulling and settling run in fibres, the rest, which may take long, in threads."""

    def __init__(self, runtime: Runtime, options: ServeOptions) -> None:
        self.stopping = False
        self._runtime = runtime
        # Drawing randomness for each request would give up the interpreter lock each time: a tenth of a small request.
        self._name = runtime.cell.context.ids.unique(runtime.cell.context.clock.now_ms())
        self._count = count(1)
        self._body_seconds = options.body_seconds
        self._access = Access(options.tokens, options.read_only_tokens)
        self._exporter = Exporter(runtime)
        self._router = Router((*ROUTES, Route("GET", "/metrics", "metrics")))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = f"{self._name}-{next(self._count)}"
        try:
            response = await self._respond(scope, receive, request_id)
        except Disconnected:
            return
        except Exception as error:
            self._runtime.boundary.report(error, "request failed", correlation_id=request_id)
            response = problem_of(error, request_id)
        await self._send(response, send)

    async def _respond(self, scope: Scope, receive: Receive, request_id: str) -> Response:
        method, path, headers = scope["method"], scope["raw_path"].decode("ascii"), scope["headers"]
        grant = self._access.grant(headers)
        secure = scope.get("scheme") == "https"
        refusal = self._access.refusal(grant, path, headers, secure=secure, request_id=request_id)
        if refusal is not None:
            return _early(refusal, headers)
        match = self._router.find(method, path)
        if not isinstance(match, Match):
            return _early(_unrouted(match, method, path, request_id), headers)
        refusal = read_only_refusal(grant, match.route, request_id)
        if refusal is not None:
            return _early(refusal, headers)
        if int(header(headers, b"content-length") or 0) > REQUEST_BYTES:
            return _early(problem_of(too_large_request(), request_id), headers)
        try:
            async with asyncio.timeout(self._body_seconds):
                body = await _read(receive)
        except TimeoutError:
            late = f"the body did not arrive within {self._body_seconds:g} s: send the request again"
            return _closing(problem(408, "request-timeout", late, instance=request_id))
        if len(body) > REQUEST_BYTES:
            return problem_of(too_large_request(), request_id)
        if match.route.function == "metrics":
            return await asyncio.get_running_loop().run_in_executor(self._runtime.threads, self._exporter.answer)
        event = make_event(
            match,
            path=path,
            query=scope["query_string"].decode("latin-1"),
            headers=headers,
            body=body,
            request_id=request_id,
            source=scope["client"][0] if scope["client"] else "",
        )
        if match.route.function == "pull":
            return await self._pull(event, receive)
        function = _FUNCTIONS[match.route.function]
        answer = partial(self._runtime.boundary.answer, function, event, None)
        if match.route.function == "meta":
            return await asyncio.get_running_loop().run_in_executor(self._runtime.threads, answer)
        return await self._runtime.fibres.run(answer)

    async def _pull(self, event: Event, receive: Receive) -> Response:
        """A pull whose client goes away stops waiting: it must not lease messages that nobody will settle."""
        caller = Caller()
        answer = asyncio.ensure_future(self._runtime.fibres.run(partial(self._serve, caller, event)))
        gone = asyncio.ensure_future(_gone(receive))
        await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            self._runtime.arrivals.leave(caller)
        gone.cancel()
        return await answer

    def _serve(self, caller: Caller, event: Event) -> Response:
        if caller.left:
            return no_content()
        with self._runtime.arrivals.serving(caller):
            return self._runtime.boundary.answer(pull, event, None)

    async def _send(self, response: Response, send: Send) -> None:
        body = response["body"].encode()
        headers = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in response["headers"].items()]
        if response["statusCode"] != 204:
            headers.append((b"content-length", b"%d" % len(body)))
        if self.stopping:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response["statusCode"], "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _unrouted(methods: Iterable[str], method: str, path: str, request_id: str) -> Response:
    allowed = ", ".join(methods)
    if not allowed:
        return problem(404, "route-unknown", f"there is nothing at {path[:200]}", instance=request_id)
    detail = f"{path[:200]} has no {method}: it has {allowed}"
    return problem(405, "method-not-allowed", detail, instance=request_id, headers={"allow": allowed})


def _early(response: Response, headers: Iterable[tuple[bytes, bytes]]) -> Response:
    """An answer before the body was read. What still comes of it is dropped unseen: closing the connection would reset
    it, and the client might lose the answer. But one that asked whether to send the body may now not send it, and its
    next request would be taken for it."""
    return response if header(headers, b"expect") is None else _closing(response)


def _closing(response: Response) -> Response:
    return {**response, "headers": {**response["headers"], "connection": "close"}}


async def _read(receive: Receive) -> bytes:
    """The body; a little more than the limit of one that is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        part = message.get("body", b"")
        size += len(part)
        parts.append(part)
        if not message.get("more_body", False) or size > REQUEST_BYTES:
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
