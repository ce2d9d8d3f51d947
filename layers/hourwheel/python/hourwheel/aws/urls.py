"""Serves requests that come through the URL of a function: finds the route, and checks what the caller may do.

API Gateway finds routes and asks IAM about each path. In front of a function URL there is only IAM, which admits a
caller to the whole function. So this module serves two kinds of callers: operators, whom a setting names, and callers
with a token (``hourwheel.api.grants``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hourwheel.api.control.bodies import GrantBody, RotateBody
from hourwheel.api.events import Event, Function, Invocation, Response, ok
from hourwheel.api.grants import (
    MOST_TOKEN_CHARACTERS,
    OPEN,
    AccessGrant,
    GrantKeys,
    OpenedGrant,
    draw_keys,
    open_grant,
    renewed,
    rotate,
    sign_grant,
)
from hourwheel.api.problems import problem
from hourwheel.api.requests import body_of, check_no_body, check_parameters, decode_control
from hourwheel.api.router import Match, Router, check_query, unknown_path, wrong_method
from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import NotFound, NotGranted, Rejected, Unauthenticated
from hourwheel.times import rfc3339

GRANT_HEADER = "x-hourwheel-token"
"""Holds the token of a request, whose ``authorization`` header holds the signature for IAM. In an answer it holds the
next token, which replaces that of the request."""

URL_ROUTES = (
    _CREATE := HttpRoute("POST", "/v1/grants", "meta", "create_grant", GrantBody),
    _ROTATE := HttpRoute("POST", "/v1/grants/rotate", "meta", "rotate_grants", RotateBody),
    _ENDPOINTS := HttpRoute("GET", "/v1/endpoints", "meta"),
)
"""Routes that only deployments with function URLs have."""

_router = Router((*ROUTES, *URL_ROUTES))

_ASSUMED = re.compile(r"arn:(?P<partition>[^:]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/.*")
_WITH_PATH = re.compile(r"(?P<kind>arn:[^:]+:iam::\d+:(?:role|user))/(?:.*/)?(?P<name>[^/]+)")


@dataclass(frozen=True)
class UrlFront:
    """Holds the settings of a deployment with function URLs. ``operators`` are the ARNs of the roles and users that may
    make every call. ``endpoints`` are the URLs of the other functions, by function; only ``meta`` has them."""

    operators: frozenset[str] = frozenset()
    endpoints: Mapping[str, str] = field(default_factory=dict)
    keys: GrantKeys = field(default_factory=GrantKeys)


def identity(arn: str) -> str:
    """Returns the ARN of the role or user without its session and its path. The ARN of a session does not name the path
    of its role, so two ARNs of one role could not be compared otherwise."""
    if assumed := _ASSUMED.fullmatch(arn):
        return f"arn:{assumed['partition']}:iam::{assumed['account']}:role/{assumed['role']}"
    named = _WITH_PATH.fullmatch(arn)
    return arn if named is None else f"{named['kind']}/{named['name']}"


def serve(
    name: str, function: Function, deployment: Deployment, event: Event, context: Invocation | None, front: UrlFront
) -> Response:
    """Answers a request to the URL of the function ``name``. Raises ``NotFound``, ``Unauthenticated``,
    ``NotGranted`` or ``Rejected``."""
    match = _match(name, event)
    if not isinstance(match, Match):
        return match
    route, names = match.route.key, match.parameters
    # A caller of an open route whom IAM has admitted, and who is no operator, is told nothing of the deployment.
    unknown = route in OPEN and not _is_operator(event, front)
    checked = None if route in OPEN else _granted(deployment, event, route, names, front)
    check_parameters(event, match.route)
    if match.route.body is None and match.route.query is not None:
        check_no_body(event, match.route)
    grant = checked and checked.grant
    matched = {**event, "routeKey": route, "pathParameters": names, "grant": grant, "unknownCaller": unknown}
    if match.route in URL_ROUTES:
        return _CALLS[route](deployment, matched, front)
    response = function(deployment, matched, context)
    following = None if checked is None else _following(deployment, checked, front)
    return response if following is None else {**response, "headers": {**response["headers"], GRANT_HEADER: following}}


def _match(name: str, event: Event) -> Match | Response:
    """Returns the route of a request, or the refusal where this function does not serve it."""
    check_query(event.get("rawQueryString") or "")
    method, path = event["requestContext"]["http"]["method"], event["rawPath"]
    match = _router.find(method, path)
    if isinstance(match, Match):
        if match.route.function == name:
            return match
        detail = f"{match.route.key} has another URL: ask the function meta for it with GET /v1/endpoints"
        raise NotFound("route-unknown", detail)
    if not match:
        raise NotFound("route-unknown", unknown_path(path))
    allowed = ", ".join(match)
    detail, instance = wrong_method(path, method, match), event["requestContext"]["requestId"]
    return problem(405, "method-not-allowed", detail, instance=instance, headers={"allow": allowed})


def _granted(
    deployment: Deployment, event: Event, route: str, names: dict[str, str], front: UrlFront
) -> OpenedGrant | None:
    """Returns the grant of the request's token; None for an operator, who may do everything."""
    if _is_operator(event, front):
        return None
    token = (event.get("headers") or {}).get(GRANT_HEADER)
    if token is None:
        raise Unauthenticated(
            "grant-missing",
            "the request has no token, and its caller is no operator of this deployment: send a token in the header"
            f" {GRANT_HEADER}",
        )
    checked = open_grant(deployment, token.strip(), front.keys)
    if checked.grant.caller not in (None, identity(_caller(event))):
        raise NotGranted(
            "grant-foreign",
            "the token is of another role or user: ask an operator for one of the caller of this request",
        )
    if not checked.grant.permits(route, names):
        what = " ".join(f"{field} {name!r}" for field, name in names.items() if field in ("subject", "group"))
        raise NotGranted(
            "grant-insufficient",
            f"the token does not allow {route}{what and ' for '}{what}: ask an operator for one that does",
        )
    return checked


def _is_operator(event: Event, front: UrlFront) -> bool:
    return identity(_caller(event)) in front.operators


def _caller(event: Event) -> str:
    authorizer: dict[str, Any] = event["requestContext"].get("authorizer") or {}
    return str((authorizer.get("iam") or {}).get("userArn") or "")


def _following(deployment: Deployment, checked: OpenedGrant, front: UrlFront) -> str | None:
    """Returns the token that replaces one in the second half of its lifetime; None in the first half, if the token may
    not be renewed, or if the key was rotated during the request."""
    keys = front.keys.current(deployment.context)
    if keys is None:  # the table was lost or replaced during the request
        return None
    following = renewed(checked, keys.version, deployment.context.clock.now_ms())
    return None if following is None else sign_grant(keys, following)


def _create(deployment: Deployment, event: Event, front: UrlFront) -> Response:
    body = decode_control(GrantBody, body_of(event))
    now_s = deployment.context.clock.now_ms() // 1_000
    keys = draw_keys(deployment.context)
    grant = AccessGrant(
        version=keys.version,
        expires_s=now_s + body.seconds,
        lifetime_s=body.seconds,
        until_s=now_s + max(body.seconds, body.renew_seconds),
        produce=body.produce,
        pull=body.pull,
        delayed=body.delayed,
        caller=None if body.caller is None else identity(body.caller),
    )
    token = sign_grant(keys, grant)
    if len(token) > MOST_TOKEN_CHARACTERS:
        raise Rejected(
            "field-invalid",
            f"the token would have {len(token)} characters, and may have {MOST_TOKEN_CHARACTERS}: create several tokens"
            " with fewer names each",
        )
    times = {"expires_at": rfc3339(grant.expires_s * 1_000), "renewable_until": rfc3339(grant.until_s * 1_000)}
    return ok({"token": token, **times})


def _rotate(deployment: Deployment, event: Event, front: UrlFront) -> Response:
    body = decode_control(RotateBody, body_of(event) or b"{}")
    return ok({"version": rotate(deployment.context, revoke=body.revoke)})


def _endpoints(deployment: Deployment, event: Event, front: UrlFront) -> Response:
    return ok(dict(front.endpoints))


_CALLS = {_CREATE.key: _create, _ROTATE.key: _rotate, _ENDPOINTS.key: _endpoints}
