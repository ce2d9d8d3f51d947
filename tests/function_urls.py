"""Imitates function URLs: events as Lambda makes them, and servers whose requests become such events."""

import json
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Protocol
from urllib.parse import parse_qsl

import pytest
from aws_lambda_powertools import Logger

from hourwheel.adapters.metrics import EmfMeter
from hourwheel.api.ack import ack
from hourwheel.api.boundary import Boundary
from hourwheel.api.events import Event, Response
from hourwheel.api.meta import meta
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.aws.services import Environment, Services
from hourwheel.client.transport import signing
from hourwheel.deployment.deployment import Deployment

_numbers = count()

ACCOUNT = "arn:aws:iam::111122223333"
OPERATOR = f"{ACCOUNT}:role/operator"
OPERATOR_SESSION = "arn:aws:sts::111122223333:assumed-role/operator/anna"
SERVICE_SESSION = "arn:aws:sts::111122223333:assumed-role/shop/i-0abc"

FUNCTIONS = {"produce": produce, "pull": pull, "ack": ack, "meta": meta}


def url_event(
    method: str, target: str, body: str | None, *, caller: str, headers: dict[str, str], encoded: bool = False
) -> Event:
    """Returns the event of a function URL with IAM authorisation, as the documentation of Lambda shows it."""
    path, _, query = target.partition("?")
    event: Event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "111122223333",
            "apiId": "abc",
            "authentication": None,
            "authorizer": {"iam": {"accessKey": "AKIA", "accountId": "111122223333", "userArn": caller}},
            "domainName": "abc.lambda-url.eu-west-1.on.aws",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
            "requestId": "r-1",
            "routeKey": "$default",
            "stage": "$default",
        },
        "isBase64Encoded": encoded,
    }
    if body is not None:
        event["body"] = body
    if query:
        event["queryStringParameters"] = dict(parse_qsl(query))
    return event


class UrlFunctions(Protocol):
    """Functions behind URLs. ``endpoints``: the URLs that they tell their clients, once they were restarted."""

    endpoints: dict[str, str]

    def restart(self) -> None: ...
    def respond(self, name: str, event: Event) -> Response: ...


class UrlDeployment:
    """The functions of a deployment with function URLs, each with services of its own over one cell."""

    def __init__(
        self, deployment: Deployment, *, operators: str = OPERATOR, endpoints: dict[str, str] | None = None
    ) -> None:
        self.deployment = deployment
        self.endpoints = endpoints if endpoints is not None else {"produce": "https://p.example"}
        account = "arn:aws:lambda:eu-west-1:111122223333:function"
        self._variables = {
            "HOURWHEEL_TABLE_PREFIX": "test",
            "HOURWHEEL_BUCKET": "test-batches",
            "HOURWHEEL_WHEEL_FUNCTION": f"{account}:test-wheel",
            "HOURWHEEL_TIMER_GROUP": "test",
            "HOURWHEEL_TIMER_ROLE": f"{ACCOUNT}:role/timers",
            "HOURWHEEL_OPERATORS": operators,
        }
        self.restart()

    def restart(self) -> None:
        """Gives each function a new process, which remembers nothing."""
        self._handlers = {name: self._handler(name) for name in FUNCTIONS}

    def _handler(self, name: str) -> Any:
        variables = {**self._variables, "HOURWHEEL_ENDPOINTS": json.dumps(self.endpoints)}
        logger = Logger(service=f"urls-{next(_numbers)}", level="CRITICAL")
        meter = EmfMeter(namespace="Hourwheel", service="test", clock=self.deployment.context.clock)
        return Services(Boundary(self.deployment, logger), meter, Environment.read(variables)).http_handler(
            FUNCTIONS[name], name
        )

    def respond(self, name: str, event: Event) -> Response:
        response: Response = self._handlers[name](event, None)
        return response


@contextmanager
def serving(deployment: UrlFunctions, callers: dict[str, str]) -> Iterator[dict[str, str]]:
    """Serves each function at a URL of its own, and yields the URLs by function. ``callers``: the ARN by access key.

    A request without a signature for the service ``lambda``, or with an unknown key, is refused as Lambda refuses it.
    """
    servers: dict[str, ThreadingHTTPServer] = {}
    try:
        for name in FUNCTIONS:
            servers[name] = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(deployment, name, callers))
            threading.Thread(target=servers[name].serve_forever, daemon=True).start()
        urls = {name: f"http://127.0.0.1:{server.server_address[1]}/" for name, server in servers.items()}
        deployment.endpoints = {name: url for name, url in urls.items() if name != "meta"}
        deployment.restart()
        yield urls
    finally:
        for server in servers.values():
            server.shutdown()
            server.server_close()


def _handler_of(deployment: UrlFunctions, name: str, callers: dict[str, str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def serve(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            headers = {key.lower(): value for key, value in self.headers.items()}
            scheme, _, rest = headers.get("authorization", "").partition(" Credential=")
            key, _, scope = rest.partition(",")[0].partition("/")
            if scheme != "AWS4-HMAC-SHA256" or not scope.endswith("/lambda/aws4_request") or key not in callers:
                self._answer(403, {"content-type": "application/json"}, b'{"Message":"Forbidden"}')
                return
            binary = not headers.get("content-type", "").startswith("application/json")
            body = (b64encode(data) if binary else data).decode() if data else None
            event = url_event(
                self.command, self.path, body, caller=callers[key], headers=headers, encoded=bool(data) and binary
            )
            response = deployment.respond(name, event)
            text = response.get("body") or ""
            sent = b64decode(text) if response.get("isBase64Encoded") else text.encode()
            self._answer(response["statusCode"], response["headers"], sent)

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_request(self, *_: Any) -> None:
            pass

    for method in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        setattr(Handler, f"do_{method}", Handler.serve)
    return Handler


def take_loopback_for_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes servers of this machine for function URLs, and signs with keys of no account."""
    monkeypatch.setattr(signing, "LAMBDA_URL", re.compile(r"127\.0\.0\.1(?P<region>)"))
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "AKIASHOP"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_CONFIG_FILE", "/dev/null"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
    ):
        monkeypatch.setenv(name, value)
