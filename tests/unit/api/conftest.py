"""Provides the API without HTTP: requests become events, and functions answer them."""

import io
import json
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from aws_lambda_powertools import Logger

from hourwheel.api.ack import ack
from hourwheel.api.boundary import Boundary
from hourwheel.api.events import Invocation, Response
from hourwheel.api.meta import meta
from hourwheel.api.produce import produce
from hourwheel.api.pull import pull
from hourwheel.api.router import Match, Router, make_event
from tests.support import Bench

# Loggers of one name share one stream.
_numbers = count()

FUNCTIONS = {"produce": produce, "pull": pull, "ack": ack, "meta": meta}

MESSAGES = "/v1/subjects/orders/messages"
GROUP = "/v1/subjects/orders/groups/billing"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    json: Any

    @property
    def slug(self) -> str:
        return str(self.json["type"]).removeprefix("urn:hourwheel:")


class Api:
    """The functions over a cell of their own. ``log`` holds what was logged."""

    def __init__(self, bench: Bench | None = None) -> None:
        self.bench = bench or Bench()
        self.log = io.StringIO()
        self.boundary = Boundary(self.bench.deployment, Logger(service=f"test-{next(_numbers)}", stream=self.log))
        self._router = Router()

    def call(
        self, method: str, target: str, body: Any = None, *, raw: bytes | None = None, context: Invocation | None = None
    ) -> Answer:
        """Sends ``body`` as JSON, or ``raw`` bytes."""
        response = self.respond(method, target, body, raw=raw, context=context)
        text = response["body"]
        return Answer(response["statusCode"], response["headers"], json.loads(text) if text else None)

    def respond(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        context: Invocation | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Returns the function's answer to Lambda."""
        path, _, query = target.partition("?")
        match = self._router.find(method, path)
        assert isinstance(match, Match), (method, path)
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        sent = [(name.encode(), text.encode()) for name, text in (headers or {}).items()]
        event = make_event(match, path=path, query=query, headers=sent, body=data, request_id="r-1", source="127.0.0.1")
        return self.boundary.answer(FUNCTIONS[match.route.function], event, context)

    def send(self, *bodies: str) -> None:
        assert self.call("POST", MESSAGES, {"messages": [{"body": body} for body in bodies]}).status == 200

    def send_later(self, body: str, **when: Any) -> str:
        """Sends a delayed message, and returns its scheduled id."""
        answer = self.call("POST", MESSAGES, {"messages": [{"body": body, **when}]})
        assert answer.status == 200, answer
        return str(answer.json["results"][0]["scheduled_id"])

    def pull(self, **how: Any) -> list[Any]:
        answer = self.call("POST", f"{GROUP}/pull", {"consumer": "c1", **how})
        assert answer.status == 200, answer
        return list(answer.json["pulls"])

    def settle(self, *settlements: dict[str, Any]) -> Answer:
        return self.call("POST", f"{GROUP}/ack", {"settle": list(settlements)})

    def bury(self, *bodies: str) -> None:
        """Makes dead letters of messages."""
        self.send(*bodies)
        (pull,) = self.pull()
        assert self.settle({"receipt": pull["receipt"], "dead": list(range(len(bodies)))}).status == 200


@pytest.fixture
def api() -> Api:
    return Api()


def quoted(name: str) -> str:
    return quote(name, safe="")
