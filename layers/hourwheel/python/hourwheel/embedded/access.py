"""Decides what a request may do: by its token, or, where the server has none, as one of a program or of a web page."""

import hmac
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from ipaddress import ip_address
from typing import TypeAlias

from hourwheel.api.events import Response
from hourwheel.api.problems import problem
from hourwheel.api.routes import Route

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_OPEN = frozenset({"/v1/health", "/v1/ready"})
"""Probes have no token, and learn nothing."""

_SECRET = frozenset({"GET /v1/subjects/{subject}/groups/{group}/push"})
"""Answers with the secret that signs deliveries: with it, somebody who may only read could send to the target."""


_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")


class Grant(Enum):
    NONE = 0
    READ = 1
    ALL = 2


class Access:
    """``tokens`` may do everything, ``read_only_tokens`` may read. Without any, every program may do everything."""

    def __init__(self, tokens: Sequence[str], read_only_tokens: Sequence[str]) -> None:
        self._known = [(_digest(token.encode()), Grant.READ) for token in read_only_tokens]
        self._known += [(_digest(token.encode()), Grant.ALL) for token in tokens]

    def grant(self, headers: Headers) -> Grant:
        """What the token of a request allows."""
        if not self._known:
            return Grant.ALL
        scheme, _, token = (header(headers, b"authorization") or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return Grant.NONE
        given, found = _digest(token.strip()), Grant.NONE
        for digest, grant in self._known:
            # All of them, whichever it is: the time tells nothing about the tokens.
            if hmac.compare_digest(digest, given):
                found = grant
        return found

    def refusal(self, grant: Grant, path: str, headers: Headers, *, secure: bool, request_id: str) -> Response | None:
        """The answer to a request that nobody may make in this way."""
        if not self._known:
            return _from_a_web_page(headers, secure, request_id)
        if grant is not Grant.NONE or path in _OPEN:
            return None
        if header(headers, b"authorization") is None:
            slug, what = "token-missing", "the request has no token"
        else:
            slug, what = "token-wrong", "the server does not know the token of the request"
        detail = f"{what}: send the header Authorization: Bearer and a token with which the server was started"
        return problem(401, slug, detail, instance=request_id, headers={"www-authenticate": "Bearer"})


def read_only_refusal(grant: Grant, route: Route, request_id: str) -> Response | None:
    """The answer to a request that changes something, or shows a secret, with a token that may only read."""
    if grant is not Grant.READ or (route.method == "GET" and route.key not in _SECRET):
        return None
    detail = f"this token may only read, and {route.key} takes one that may do everything: use another token"
    return problem(403, "token-read-only", detail, instance=request_id)


def header(headers: Headers, wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _from_a_web_page(headers: Headers, secure: bool, request_id: str) -> Response | None:
    """Without a token, any page that somebody opens in a browser on this machine could send here: from another origin,
    or under a name of its own that it points to this address (DNS rebinding)."""
    host, origin = header(headers, b"host") or b"", header(headers, b"origin")
    own = (b"https://" if secure else b"http://") + host
    if (origin is None or origin == own) and _is_address(host.decode("latin-1")):
        return None
    detail = "without --token this server answers programs alone, at localhost or its IP address: use a token"
    return problem(403, "origin-forbidden", detail, instance=request_id)


@lru_cache(maxsize=256)
def _is_address(host: str) -> bool:
    """Whether a Host header names localhost or an IP address, and not a name that anybody may point anywhere."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    if found["name"] is not None and found["name"].lower() in {"localhost", ""}:
        return True
    try:
        return ip_address(found["six"] or found["name"]).version == (6 if found["six"] else 4)
    except ValueError:
        return False


def _digest(token: bytes) -> bytes:
    """Of one length, so that comparing two tells nothing about theirs."""
    return sha256(token).digest()
