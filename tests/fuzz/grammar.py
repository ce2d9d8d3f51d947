"""Draws requests by the grammar of docs/api/: valid, nearly valid and hostile ones."""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from hourwheel.api.routes import ROUTES, HttpRoute
from tests.fuzz.values import RAW, RAW_MSGPACK, TEXTS, document, packed_document, twisted

ALL_ROUTES = (
    *ROUTES,
    HttpRoute("GET", "/metrics", "metrics"),
    HttpRoute("GET", "/v1/ready", "ready"),
    HttpRoute("GET", "/v1/report", "report"),
)

KEPT = ("kept-a", "kept-b")
"""Subjects that get valid messages only: the server must have all of them at the end."""

SUBJECTS = ("orders", "a", "x" * 100)
GROUPS = ("billing", "g.1")
SMUGGLED = "DELETE /v1/subjects/{} HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Call(NamedTuple):
    """A call. ``kept``: the messages that an answer of 200 promises to keep. ``msgpack``: the body is msgpack."""

    method: str
    target: str
    body: bytes
    kept: tuple[str, ...] = ()
    msgpack: bool = False


class Grammar:
    """Draws requests. Uses the ids and receipts of answers passed to ``learn``."""

    def __init__(self, rng: Random, name: str) -> None:
        self._rng = rng
        self._name = name
        self._count = 0
        self._receipts = ["AAAA", "no receipt"]
        self._ids = ["6d2e5c10-60-0-17-2-x", "0-0-0"]
        self._dead = ["0-0", "12-0"]

    def learn(self, answer: Any) -> None:
        """Remembers the receipts and ids of an answer."""
        if not isinstance(answer, dict):
            return
        self._receipts += [pull["receipt"] for pull in answer.get("pulls") or [] if isinstance(pull, dict)][:2]
        results = answer.get("results")
        for result in results[:3] if isinstance(results, list) else []:
            if isinstance(result, dict) and "scheduled_id" in result:
                self._ids.append(result["scheduled_id"])
        for message in (answer.get("messages") or [])[:3] if isinstance(answer.get("messages"), list) else []:
            if isinstance(message, dict) and "dead_id" in message:
                self._dead.append(message["dead_id"])

    def draw(self) -> Call:
        rng = self._rng
        if rng.random() < 0.2:
            return self._kept()
        route = rng.choice(ALL_ROUTES)
        method = (
            route.method if rng.random() < 0.97 else rng.choice(("HEAD", "OPTIONS", "TRACE", "QUERY", "PUT", "get"))
        )
        target = self._path(route) + self._query(route)
        body, in_msgpack = self._body(route)
        return Call(method, target, body, msgpack=in_msgpack)

    def _kept(self) -> Call:
        """Draws messages whose bodies look like requests."""
        rng = self._rng
        subject = rng.choice(KEPT)
        names = []
        for _ in range(rng.choice((1, 1, 2, 5))):
            self._count += 1
            names.append(f"{self._name}-{self._count} " + SMUGGLED.format(subject))
        messages = [{"body": name, **({"key": rng.choice("kl")} if rng.random() < 0.3 else {})} for name in names]
        body, in_msgpack = _encoded(rng, {"messages": messages})
        return Call("POST", f"/v1/subjects/{subject}/messages", body, tuple(names), in_msgpack)

    def _path(self, route: HttpRoute) -> str:
        values = {
            "{subject}": lambda: self._word(SUBJECTS),
            "{group}": lambda: self._word(GROUPS),
            "{id}": lambda: self._word(self._ids),
            "{dead_id}": lambda: self._word(self._dead),
        }
        parts = [values[part]() if part in values else part for part in route.template.split("/")]
        return "/".join(parts)

    def _word(self, valid: Any) -> str:
        rng = self._rng
        if rng.random() < 0.9:
            return quote(rng.choice(valid), safe="")
        return rng.choice((quote(rng.choice(TEXTS), safe=""), "%zz", "%", "%ff%fe", "a%00b", "%2e%2e", "a;b=c"))

    def _query(self, route: HttpRoute) -> str:
        rng = self._rng
        # Unknown parameters are refused before anything else is read.
        if rng.random() < (0.5 if route.query else 0.95):
            return ""
        names = rng.choices((*(route.query or ("limit", "dry_run")), "x", ""), k=rng.choice((1, 1, 2, 3)))
        values = (
            1,
            100,
            0,
            -1,
            101,
            744,
            745,
            "1e2",
            "%",
            "",
            quote(rng.choice(TEXTS)),
            "+1",
            "NaN",
            "٣".encode().hex(),
        )
        return "?" + "&".join(f"{name}={rng.choice(values)}" for name in names)

    def _body(self, route: HttpRoute) -> tuple[bytes, bool]:
        """Draws a body, and whether it is sent as msgpack."""
        rng = self._rng
        shape = _SHAPES.get(route.key)
        if shape is None:
            return (b"" if rng.random() < 0.9 else rng.choice(RAW)), False
        if rng.random() < 0.08:
            return rng.choice(RAW), rng.random() < 0.3
        if rng.random() < 0.04:
            return rng.choice(RAW_MSGPACK), True
        value = shape(self, rng)
        while rng.random() < 0.4:
            value = twisted(rng, value)
        return _encoded(rng, value)

    def message(self, rng: Random) -> dict[str, Any]:
        message: dict[str, Any] = {"body": rng.choice(TEXTS)}
        if rng.random() < 0.1:
            message = {"body_base64": rng.choice(("AAEC", "", "AA==", "A", "not base64!", "AAEC" * 5_000))}
        extras = {
            "key": rng.choice(("k", "x" * 256, "x" * 257)),
            "tags": rng.choice((["eu"], ["a", "b"], ["a", "a"], ["x"] * 11)),
            "headers": rng.choice(({"trace": "abc"}, {}, {"x" * 101: "y"}, {"x": "y" * 5_000})),
            "id": rng.choice(("order-7", "x" * 100, "x" * 101)),
            "delay": rng.choice((0, 0.05, "50ms", "2h", "90d", "733d", -1, "1.5h")),
            "deliver_at": rng.choice(("2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z", "2027-06-01T00:00:00.5+02:00")),
            "precision": rng.choice(("minute", "minute", "second", "", 60)),
        }
        for name, value in extras.items():
            if rng.random() < 0.15:
                message[name] = value
        return message

    def receipts(self, rng: Random) -> list[dict[str, Any]]:
        extras: dict[str, Any] = {
            "ack": [0],
            "retry": rng.choice(([0], [{"index": 0, "delay": "50ms"}, 1], [5_000])),
            "dead": [0],
            "release": [0, 1],
            "extend_seconds": 60,
        }
        kinds = rng.choices(sorted(extras), k=rng.choice((0, 0, 1, 1, 2)))
        count = rng.choice((0, 1, 1, 1, 2))
        return [{"receipt": rng.choice(self._receipts), **{kind: extras[kind] for kind in kinds}} for _ in range(count)]


def _encoded(rng: Random, value: Any) -> tuple[bytes, bool]:
    """Returns the value as msgpack or JSON, and whether it is msgpack."""
    data = packed_document(value) if rng.random() < 0.35 else None
    return (document(value), False) if data is None else (data, True)


def _batch(grammar: Grammar, rng: Random) -> Any:
    batch: dict[str, Any] = {"messages": [grammar.message(rng) for _ in range(rng.choice((1, 1, 2, 10, 100)))]}
    if rng.random() < 0.2:
        batch["idempotency_key"] = rng.choice(("k-1", "k-2", "x" * 101))
    if rng.random() < 0.1:
        batch["sequence"] = rng.choice((1, 2, 3, 0, -1, 1 << 60, "1"))
    return batch


def _mixed(grammar: Grammar, rng: Random) -> Any:
    batch = _batch(grammar, rng)
    return {**batch, "messages": [{"subject": rng.choice(SUBJECTS), **message} for message in batch["messages"]]}


def _pull(grammar: Grammar, rng: Random) -> Any:
    pull: dict[str, Any] = {"consumer": rng.choice(("c1", "host-2")), "wait_seconds": rng.choice((0, 0, 0.05))}
    pull["max_messages"] = rng.choice((1, 10, 100, 1_000))
    pull["lease_seconds"] = rng.choice((1, 30, 43_200))
    if rng.random() < 0.3:
        pull["settle"] = grammar.receipts(rng)
    return pull


def _subject(grammar: Grammar, rng: Random) -> Any:
    settings = {"queues": rng.choice((1, 2, 3, 65)), "retention_seconds": rng.choice((60, 59, 259_200))}
    return {name: value for name, value in settings.items() if rng.random() < 0.4} | {
        "clamp_delays": rng.random() < 0.5,
        "read_only": rng.random() < 0.05,
    }


def _group(grammar: Grammar, rng: Random) -> Any:
    settings: dict[str, Any] = {
        "start": rng.choice(("earliest", "latest")),
        "max_attempts": rng.choice((1, 2, 16, 1_000, 1_001)),
        "max_in_flight": rng.choice((0, 10, 1_000, -1)),
        "messages_per_second": rng.choice((0, 0.5, 1_000, "many")),
        "retry": rng.choice(({"first_seconds": 0, "factor": 1, "cap_seconds": 0}, {"delays_seconds": [0, 1]}, {})),
        # Addresses that no request could reach, even if the server accepted one.
        "push": rng.choice(
            (None, {"kind": "https", "url": "https://127.0.0.1:9/"}, {"kind": "sqs", "arn": "arn:aws:x"})
        ),
    }
    return {name: value for name, value in settings.items() if rng.random() < 0.4}


def _choice(*values: Any) -> Callable[[Grammar, Random], Any]:
    return lambda grammar, rng: rng.choice(values)


_SOME_DEAD = _choice({"all": True}, {"ids": ["0-0"]}, {"from": "2020-01-01T00:00:00Z"}, {"to": "2030-01-01T00:00:00Z"})

_SHAPES: dict[str, Callable[[Grammar, Random], Any]] = {
    "POST /v1/messages": _mixed,
    "POST /v1/subjects/{subject}/messages": _batch,
    "POST /v1/subjects/{subject}/groups/{group}/pull": _pull,
    "POST /v1/subjects/{subject}/groups/{group}/ack": lambda grammar, rng: {"settle": grammar.receipts(rng)},
    "PUT /v1/subjects/{subject}": _subject,
    "PUT /v1/subjects/{subject}/groups/{group}": _group,
    "POST /v1/subjects/{subject}/groups/{group}/seek": _choice(
        {"to": "start"},
        {"to": "end"},
        {"time": "2026-01-01T00:00:00Z"},
        {"queue": 0, "offset": 3},
        {"queue": 9, "offset": -1},
    ),
    "DELETE /v1/subjects/{subject}/groups/{group}/dead": _SOME_DEAD,
    "POST /v1/subjects/{subject}/groups/{group}/dead/redrive": _SOME_DEAD,
    "PATCH /v1/scheduled/{id}": _choice({"delay": "10m"}, {"delay": 0}, {"deliver_at": "2030-01-01T00:00:00Z"}, {}),
}
