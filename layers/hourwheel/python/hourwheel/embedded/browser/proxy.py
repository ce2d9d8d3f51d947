"""Serves the console on loopback, and passes its calls on to a deployment with the user's token or signatures.

    browser ──http://127.0.0.1:PORT/console/──► proxy ──https, signed──► the HTTP API

Nothing is added to the deployment. A foreign web page in the same browser, or a program of another user of this
machine, must not act with the user's rights. So a call needs the Host of this machine, no foreign Origin, and a secret
that only the printed address holds.
"""

import asyncio
import hmac
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

import msgspec

from hourwheel.api.control.subjects import READ_ONLY_HEADER
from hourwheel.api.events import Response
from hourwheel.api.problems import problem_of
from hourwheel.api.requests import too_large_request
from hourwheel.api.router import Match, Router
from hourwheel.api.routes import ROUTES
from hourwheel.client.errors import AnswerError, Problem, ServerUnavailable, from_answer
from hourwheel.client.transport.connections import Connections
from hourwheel.client.transport.endpoint import Endpoint, Reply
from hourwheel.client.transport.signing import Signer
from hourwheel.console.files import SECURITY_HEADERS
from hourwheel.console.settings import ConsoleSettings
from hourwheel.embedded.browser.console import console_answer, is_console
from hourwheel.embedded.credentials.access import OWN_ROUTES, Grant, header, read_only_refusal
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.requests import Disconnected, Request
from hourwheel.model.fields import REQUEST_BYTES

_CONSOLE_HEADER = b"x-hourwheel-console"  # holds the secret; a page of another origin cannot set this header

_THREADS = 8  # a page makes a few calls at a time
_API = "/v1/"
_NO_STORE = {"cache-control": "no-store"}


class UpstreamCall(NamedTuple):
    """A call of the console, which the proxy passes on. ``target`` begins with ``/v1/``."""

    method: str
    target: str
    body: bytes | None = None
    content_type: str | None = None
    accept_encoding: str = "identity"
    read_only: bool = False


class Upstream:
    """Makes calls to a deployment, one try each: after a failure nobody knows whether a call took effect, and the
    person at the page decides. Thread-safe."""

    def __init__(
        self, endpoint: Endpoint, connections: Connections, *, token: str | None, signer: Signer | None
    ) -> None:
        self._endpoint = endpoint
        self._connections = connections
        self._token = token
        self._signer = signer

    def exchange(self, call: UpstreamCall) -> Reply:
        """Returns the answer of the deployment, also a refusal. Raises ``AnswerError`` if no answer comes, if there are
        no credentials, and if AWS refuses the signature."""
        target = self._endpoint.prefix + call.target
        # The headers of the browser are not passed on: its cookies and its origin do not concern the deployment.
        headers = {"accept": "application/json", "accept-encoding": call.accept_encoding}
        if call.content_type is not None:
            headers["content-type"] = call.content_type
        if call.read_only:
            headers[READ_ONLY_HEADER] = "1"
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        signed = {}
        if self._signer is not None:
            signed = self._signer.headers(call.method, target, call.body, call.content_type)
        reply = self._connections.exchange(call.method, target, call.body, {**headers, **signed})
        if self._signer is not None and reply.status in {401, 403}:
            error = from_answer(reply.status, reply.body, retry_after=reply.retry_after)
            raise self._signer.explained(error, call.method, target, signed, reply.date)
        return reply


class ConsoleProxy:
    """Answers the requests of one user's browser. The owner of the object calls ``close``."""

    def __init__(self, upstream: Upstream, settings: ConsoleSettings, *, port: int, secret: str) -> None:
        self._upstream = upstream
        self._settings = settings
        self._hosts = {f"127.0.0.1:{port}".encode(), f"localhost:{port}".encode()}
        self._secret = secret.encode()
        self._router = Router((*ROUTES, *OWN_ROUTES))
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="hourwheel-console")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def respond(self, request: Request) -> Answer:
        """Returns the answer, also to a request that failed. Raises only ``Disconnected``."""
        try:
            return await self._answer(request)
        except Disconnected:
            raise
        except AnswerError as error:
            return _explained(error)
        except Exception as error:
            sys.stderr.write(f"hourwheel: a call of the console failed: {error!r}\n")
            return _of(problem_of(error, ""))

    async def _answer(self, request: Request) -> Answer:
        refusal = self._foreign(request)
        if refusal is not None:
            return refusal
        if request.path == "/":
            return Answer(307, {**SECURITY_HEADERS, "location": "console/"}, b"")
        if is_console(request.path):
            return _of(console_answer(request.method, request.path, request.headers, self._settings, ""))
        if not _is_call(request.path):
            detail = f"{request.path[:200]} belongs to neither the console nor the API: the console begins at /console/"
            return _problem(404, "route-unknown", "No such route", detail)
        refusal = self._refused(request)
        if refusal is not None:
            return refusal
        request.trusted = True
        if (request.head.length or 0) > REQUEST_BYTES or len(body := await _body_of(request)) > REQUEST_BYTES:
            return _of(problem_of(too_large_request(), ""))
        pass_on = partial(self._upstream.exchange, self._call(request, body))
        return _passed_on(await asyncio.get_running_loop().run_in_executor(self._threads, pass_on))

    def _call(self, request: Request, body: bytes) -> UpstreamCall:
        target = f"{request.path}?{request.query}" if request.query else request.path
        kind = header(request.headers, b"content-type")
        accepted = header(request.headers, b"accept-encoding") or b""
        return UpstreamCall(
            request.method,
            target,
            body or None,
            None if kind is None or not body else kind.decode("latin-1"),
            "gzip" if b"gzip" in accepted else "identity",
            self._settings.read_only,
        )

    def _foreign(self, request: Request) -> Answer | None:
        """Returns the refusal of a request that a page of another site may have sent, or None.

        Such a page could send requests here from its own origin, or under a name of its own that resolves to this
        address (DNS rebinding).
        """
        host, origin = header(request.headers, b"host") or b"", header(request.headers, b"origin")
        if host in self._hosts and origin in {None, b"http://" + host}:
            return None
        detail = "this console answers its own page alone: open the address that the command has printed"
        return _problem(403, "origin-forbidden", "Requests of other web pages are not answered", detail)

    def _refused(self, request: Request) -> Answer | None:
        """Returns the refusal of a call without the secret, or of one that a read-only console does not make; None for
        other calls."""
        secret = header(request.headers, _CONSOLE_HEADER) or b""
        # In constant time: other programs on this machine could measure the time and guess the secret.
        if not hmac.compare_digest(secret, self._secret):
            detail = "open the address that the command has printed: it holds the secret of this console"
            return _problem(403, "console-secret", "The secret of the console is missing or wrong", detail)
        if not self._settings.read_only:
            return None
        match = self._router.find(request.method, request.path)
        # A path that no route has is refused: the deployment might understand it otherwise.
        if isinstance(match, Match) and read_only_refusal(Grant.READ, match.route, "") is None:
            return None
        detail = "the command was started with --read-only, and this call changes something or shows a secret"
        return _problem(403, "console-read-only", "The console is read-only", detail)


def _is_call(path: str) -> bool:
    """Returns whether a path is one of the API. Refuses empty parts, ``.``, ``..`` and encoded slashes, with which a
    proxy on the way could reach another path."""
    parts = [unquote(part) for part in path.removeprefix(_API).split("/")]
    return path.startswith(_API) and {"", ".", ".."}.isdisjoint(parts) and not any("/" in part for part in parts)


async def _body_of(request: Request) -> bytes:
    if request.method != "GET":
        return await request.body()
    request.drop_body()  # no GET takes a body
    return b""


def _passed_on(reply: Reply) -> Answer:
    # The answer must not become a page of this origin in the browser, whatever the deployment answers.
    headers = {**SECURITY_HEADERS, **_NO_STORE, "content-type": reply.kind or "application/octet-stream"}
    if reply.encoding:
        headers["content-encoding"] = reply.encoding
    if reply.retry_after:
        headers["retry-after"] = reply.retry_after
    return Answer(reply.status, headers, reply.body)


def _explained(error: AnswerError) -> Answer:
    """Returns the answer to a call that the deployment did not answer, or that AWS refused."""
    status = error.status or (502 if isinstance(error, ServerUnavailable) else 401)
    if not error.is_ours:
        return _problem(status, "gateway-error", error.problem.title or "The gateway refused the call", str(error))
    return _problem(status, error.slug, error.problem.title or "The call was not answered", str(error))


def _problem(status: int, slug: str, title: str, detail: str) -> Answer:
    document = Problem(type=f"urn:hourwheel:{slug}", title=title, status=status, detail=detail)
    headers = {**SECURITY_HEADERS, **_NO_STORE, "content-type": "application/problem+json"}
    return Answer(status, headers, msgspec.json.encode(document))


def _of(response: Response) -> Answer:
    body = response["body"]
    return Answer(response["statusCode"], response["headers"], body if isinstance(body, bytes) else body.encode())
