"""Finds the route of an HTTP request, and builds the event that API Gateway would build."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from hourwheel.api.events import Event
from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.errors import Rejected

_PARAMETERS = 32  # no route has more than five; a head has room for 30,000, whose parsing takes 50 ms


class Match(NamedTuple):
    route: HttpRoute
    parameters: dict[str, str]


class _Node:
    """Stands for the beginning of a path. ``words`` leads to the nodes of its next parts, ``parameter`` to the node of
    any other next part, and ``routes`` has the routes that end here, by method."""

    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.parameter: tuple[str, _Node] | None = None
        self.routes: dict[str, HttpRoute] = {}


class Router:
    """Finds the route of a path. Decodes words and parameters, as every gateway on the way may do, but only after the
    path is split, so that an encoded slash does not separate parts."""

    def __init__(self, routes: Sequence[HttpRoute] = ROUTES) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for part in route.template.split("/")[1:]:
                node = self._grow(node, part)
            node.routes[route.method] = route

    def find(self, method: str, path: str) -> Match | Sequence[str]:
        """Returns the match. Without one returns the methods that the path has: none if no route has the path."""
        node: _Node | None = self._root
        parameters: dict[str, str] = {}
        for part in path.split("/")[1:]:
            assert node is not None
            decoded = unquote(part)
            following = node.words.get(decoded)
            if following is None:
                if node.parameter is None or not part:
                    return ()
                name, following = node.parameter
                parameters[name] = decoded
            node = following
        assert node is not None
        route = node.routes.get(method)
        return Match(route, parameters) if route is not None else sorted(node.routes)

    def _grow(self, node: _Node, part: str) -> _Node:
        if not part.startswith("{"):
            return node.words.setdefault(part, _Node())
        if node.parameter is None:
            node.parameter = (part.strip("{}"), _Node())
        return node.parameter[1]


def unknown_path(path: str) -> str:
    """Returns the detail of the answer to a request whose path no route has."""
    if path.startswith("/v1/v1/"):
        return f"no route has the path {path[:200]}: leave /v1 out of the URL of the server"
    return f"no route has the path {path[:200]}: GET /v1/openapi.json lists the paths"


def wrong_method(path: str, method: str, methods: Iterable[str]) -> str:
    """Returns the detail of the answer to a request for a path that does not take its method, but takes ``methods``."""
    return f"{path[:200]} does not take {method}: send {' or '.join(methods)}"


def check_query(query: str) -> None:
    """Raises ``Rejected`` for a query with too many parameters, before any is read."""
    if query.count("&") >= _PARAMETERS:
        raise Rejected(
            "field-invalid",
            f"a request has at most {_PARAMETERS} query parameters, this one has more: leave some out",
            field="query",
        )


def make_event(
    match: Match,
    *,
    path: str,
    query: str,
    headers: Iterable[tuple[bytes, bytes]],
    body: bytes,
    request_id: str,
    source: str,
) -> Event:
    """Returns an event of payload 2.0 with the fields that the functions read."""
    event: Event = {
        "version": "2.0",
        "routeKey": match.route.key,
        "rawPath": path,
        "rawQueryString": query,
        "headers": {name.decode("latin-1"): value.decode("latin-1") for name, value in headers},
        "pathParameters": match.parameters,
        "requestContext": {
            "http": {"method": match.route.method, "path": path, "protocol": "HTTP/1.1", "sourceIp": source},
            "requestId": request_id,
            "routeKey": match.route.key,
        },
        "body": body,
        "isBase64Encoded": False,
    }
    if query:
        event["queryStringParameters"] = _parameters(query)
    return event


def _parameters(query: str) -> dict[str, str]:
    """Parses the query. Joins the values of a repeated parameter with commas, as API Gateway does."""
    parameters: dict[str, str] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        parameters[name] = f"{parameters[name]},{text}" if name in parameters else text
    return parameters
