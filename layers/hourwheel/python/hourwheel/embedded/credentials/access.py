"""Decides what a request may do: by its token, or on a server without tokens by where the request comes from."""

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
from hourwheel.api.routes import HttpRoute

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

OWN_ROUTES = (
    HttpRoute("GET", "/metrics", "metrics", parameters=None),
    HttpRoute("GET", "/v1/ready", "ready", parameters=None),
    HttpRoute("GET", "/v1/report", "report", parameters=None),
)
"""Routes of the embedded server alone."""

PROBES = frozenset({"/v1/health", "/v1/ready"})
"""Paths of probes. They need no token, because their answers hold no data."""

_SECRET = frozenset({"GET /v1/subjects/{subject}/groups/{group}/push"})
"""Routes whose answer holds the secret that signs deliveries. With it, a holder of a read-only token could send to the
target."""


# A host header with a name or an IPv4 address, or with an IPv6 address in brackets; a port may follow.
_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^\[\]:]*))(?::[0-9]*)?")


class Grant(Enum):
    NONE = 0
    READ = 1
    ALL = 2


class Access:
    """Decides what requests may do: those with one of ``tokens`` everything, those with one of ``read_only_tokens``
    only read. On a server without tokens every request of a program may do everything, and none of a web page.
    ``allowed_hosts``: names at which such a server answers, besides localhost."""

    def __init__(
        self, tokens: Sequence[str], read_only_tokens: Sequence[str], allowed_hosts: Sequence[str] = ()
    ) -> None:
        self._allowed_hosts = frozenset(allowed_hosts)
        self._grants = [(_digest(token.encode()), Grant.READ) for token in read_only_tokens]
        self._grants += [(_digest(token.encode()), Grant.ALL) for token in tokens]

    def grant(self, headers: Headers) -> Grant:
        """Returns what the token of a request allows."""
        if not self._grants:
            return Grant.ALL
        scheme, _, token = (header(headers, b"authorization") or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return Grant.NONE
        request_digest, granted = _digest(token.strip()), Grant.NONE
        for digest, grant in self._grants:
            # The loop compares with every token, so that its duration reveals nothing about them.
            if hmac.compare_digest(digest, request_digest):
                granted = grant
        return granted

    def refusal(self, grant: Grant, path: str, headers: Headers, *, secure: bool, request_id: str) -> Response | None:
        """Returns the refusal of a request without a valid token, or on a server without tokens of one that a web page
        may have sent; None if the request is allowed so far."""
        if not self._grants:
            return _from_a_web_page(headers, self._allowed_hosts, secure, request_id)
        if grant is not Grant.NONE or path in PROBES:
            return None
        if header(headers, b"authorization") is None:
            slug, fault = "token-missing", "the request has no token"
        else:
            slug, fault = "token-wrong", "the server does not know the token of the request"
        detail = f"{fault}: send the header Authorization: Bearer and a token with which the server was started"
        return problem(401, slug, detail, instance=request_id, headers={"www-authenticate": "Bearer"})


def read_only_refusal(grant: Grant, route: HttpRoute, request_id: str) -> Response | None:
    """Returns the refusal of a request with a read-only token that would change something or show a secret, or None."""
    if grant is not Grant.READ or (route.method == "GET" and route.key not in _SECRET):
        return None
    detail = f"this token may only read, and {route.key} takes one that may do everything: use another token"
    return problem(403, "token-read-only", detail, instance=request_id)


def header(headers: Headers, name: bytes) -> bytes | None:
    return next((value for own_name, value in headers if own_name == name), None)


def _from_a_web_page(headers: Headers, allowed_hosts: frozenset[str], secure: bool, request_id: str) -> Response | None:
    """Returns the refusal of a request that a web page may have sent, or None.

    A page in a browser on this machine could send requests here: from another origin, or under a host name of its own
    that resolves to this address (DNS rebinding).
    """
    host, origin = header(headers, b"host") or b"", header(headers, b"origin")
    own = (b"https://" if secure else b"http://") + host
    named = host.decode("latin-1")
    is_ours = _is_address(named) or _name(named) in allowed_hosts
    if is_ours and (origin is None or origin == own):
        return None
    detail = "without --token this server answers programs alone, at localhost or its IP address: "
    detail += "use a token" if is_ours else f"use a token, or allow the name {_name(named)[:100]!r} with --allow-host"
    return problem(403, "origin-forbidden", detail, instance=request_id)


def _name(host: str) -> str:
    """Returns the name in a Host header, without the port."""
    return host.partition(":")[0].lower()


@lru_cache(maxsize=256)
def _is_address(host: str) -> bool:
    """Returns whether a Host header names localhost or an IP address. DNS can make any other name resolve to this
    machine."""
    parts = _HOST.fullmatch(host)
    if parts is None:
        return False
    if parts["name"] is not None and parts["name"].lower() in {"localhost", ""}:
        return True
    try:
        return ip_address(parts["six"] or parts["name"]).version == (6 if parts["six"] else 4)
    except ValueError:
        return False


def _digest(token: bytes) -> bytes:
    """Returns a digest of fixed length, so that a comparison reveals nothing about the length of a token."""
    return sha256(token).digest()
