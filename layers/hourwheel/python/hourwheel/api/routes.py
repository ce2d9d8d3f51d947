"""Lists every route of the HTTP API with the function that serves it, and the sets of routes that policies and tokens
allow."""

from typing import NamedTuple


class HttpRoute(NamedTuple):
    """A method and a path template, and the Lambda ``function`` that serves them. The route refuses every query
    parameter that is not in ``query``; with None it takes and ignores all, and a body too. ``body``: whether it takes
    one, else it refuses a body. ``dry_run_in_body``: a field of the body, not a parameter, asks for a dry run."""

    method: str
    template: str
    function: str
    query: tuple[str, ...] | None = ()
    body: bool = False
    dry_run_in_body: bool = False

    @property
    def takes_body(self) -> bool:
        return self.body or self.dry_run_in_body

    @property
    def key(self) -> str:
        """The name that API Gateway gives the route, and puts into events as ``routeKey``."""
        return f"{self.method} {self.template}"


_SUBJECT = "/v1/subjects/{subject}"
_GROUP = f"{_SUBJECT}/groups/{{group}}"
_QUEUE = f"{_SUBJECT}/queues/{{queue}}"
_SCHEDULED = "/v1/scheduled/{id}"
_CELL = "/v1/cells/{cell}"

_PAGE = ("limit", "after")
_DELAYED = (*_PAGE, "from", "to", "bodies")

ROUTES = (
    HttpRoute("POST", "/v1/messages", "produce", body=True),
    HttpRoute("POST", f"{_SUBJECT}/messages", "produce", body=True),
    HttpRoute("POST", f"{_GROUP}/pull", "pull", body=True),
    HttpRoute("POST", f"{_GROUP}/ack", "ack", body=True),
    HttpRoute("GET", "/v1/health", "meta", query=None),
    HttpRoute("GET", "/v1/openapi.json", "meta"),
    HttpRoute("GET", "/v1/overview", "meta", (*_PAGE, "prefix", "sort", "order")),
    HttpRoute("GET", "/v1/subjects", "meta", _PAGE),
    HttpRoute("GET", _SUBJECT, "meta"),
    HttpRoute("PUT", _SUBJECT, "meta", body=True),
    HttpRoute("DELETE", _SUBJECT, "meta"),
    HttpRoute("POST", f"{_SUBJECT}/pause", "meta"),
    HttpRoute("POST", f"{_SUBJECT}/resume", "meta"),
    HttpRoute("GET", f"{_SUBJECT}/overview", "meta", _PAGE),
    HttpRoute("GET", f"{_SUBJECT}/groups", "meta", _PAGE),
    HttpRoute("GET", _GROUP, "meta"),
    HttpRoute("PUT", _GROUP, "meta", body=True),
    HttpRoute("DELETE", _GROUP, "meta"),
    HttpRoute("POST", f"{_GROUP}/pause", "meta"),
    HttpRoute("POST", f"{_GROUP}/resume", "meta"),
    HttpRoute("POST", f"{_GROUP}/seek", "meta", dry_run_in_body=True),
    HttpRoute("GET", f"{_GROUP}/lag", "meta"),
    HttpRoute("POST", f"{_GROUP}/held", "meta", body=True),
    HttpRoute("GET", f"{_GROUP}/push", "meta"),
    HttpRoute("GET", f"{_GROUP}/consumers", "meta"),
    HttpRoute("POST", f"{_GROUP}/consumers/{{consumer}}/leave", "meta", ("forget",)),
    HttpRoute("GET", f"{_GROUP}/leases", "meta"),
    HttpRoute("GET", f"{_GROUP}/retries", "meta"),
    HttpRoute("GET", f"{_GROUP}/dead", "meta", (*_PAGE, "reason", "detail", "newest")),
    HttpRoute("DELETE", f"{_GROUP}/dead", "meta", body=True),
    HttpRoute("POST", f"{_GROUP}/dead/redrive", "meta", body=True),
    HttpRoute("GET", f"{_GROUP}/dead/reasons", "meta"),
    HttpRoute("GET", f"{_GROUP}/dead/{{dead_id}}", "meta"),
    HttpRoute("GET", f"{_QUEUE}/messages", "meta", ("offset", "time", "newest", "limit")),
    HttpRoute("GET", f"{_SUBJECT}/messages/{{id}}", "meta", ("from", "to", "after", "group")),
    HttpRoute("POST", f"{_SUBJECT}/queues", "meta", dry_run_in_body=True),
    HttpRoute("POST", f"{_QUEUE}/move", "meta", dry_run_in_body=True),
    HttpRoute("POST", f"{_SUBJECT}/spread", "meta", dry_run_in_body=True),
    HttpRoute("GET", "/v1/routes/{subject}", "meta"),
    HttpRoute("DELETE", "/v1/routes/{subject}/pending", "meta", ("queue", "dry_run")),
    HttpRoute("GET", "/v1/cells", "meta"),
    HttpRoute("GET", _CELL, "meta"),
    HttpRoute("PUT", _CELL, "meta", dry_run_in_body=True),
    HttpRoute("DELETE", _CELL, "meta", ("dry_run", "lost")),
    HttpRoute("POST", f"{_CELL}/drain", "meta", dry_run_in_body=True),
    HttpRoute("GET", f"{_SUBJECT}/scheduled", "meta", ("hours",)),
    HttpRoute("GET", f"{_SUBJECT}/delayed", "meta", _DELAYED),
    HttpRoute("GET", f"{_SUBJECT}/dead", "meta", _PAGE),
    HttpRoute("GET", "/v1/scheduled", "meta", ("subject", "from", "to", "step")),
    HttpRoute("GET", "/v1/delayed", "meta", _DELAYED),
    HttpRoute("GET", "/v1/wheels", "meta"),
    HttpRoute("GET", "/v1/archive", "meta"),
    HttpRoute("GET", _SCHEDULED, "meta"),
    HttpRoute("PATCH", _SCHEDULED, "meta", body=True),
    HttpRoute("DELETE", _SCHEDULED, "meta"),
)

PRODUCE = frozenset({"POST /v1/subjects/{subject}/messages"})
DELAYED = frozenset(
    {
        "GET /v1/subjects/{subject}/scheduled",
        "GET /v1/subjects/{subject}/delayed",
        "GET /v1/scheduled/{id}",
        "PATCH /v1/scheduled/{id}",
        "DELETE /v1/scheduled/{id}",
    }
)
CONSUME = frozenset(
    {
        "POST /v1/subjects/{subject}/groups/{group}/pull",
        "POST /v1/subjects/{subject}/groups/{group}/ack",
        "GET /v1/subjects/{subject}/groups/{group}/lag",
    }
)
SEEK = frozenset({"POST /v1/subjects/{subject}/groups/{group}/seek"})
PAUSE = frozenset(
    {
        "POST /v1/subjects/{subject}/groups/{group}/pause",
        "POST /v1/subjects/{subject}/groups/{group}/resume",
    }
)
DEAD_LETTERS = frozenset(
    {
        "POST /v1/subjects/{subject}/groups/{group}/held",
        "GET /v1/subjects/{subject}/groups/{group}/dead",
        "DELETE /v1/subjects/{subject}/groups/{group}/dead",
        "POST /v1/subjects/{subject}/groups/{group}/dead/redrive",
        "GET /v1/subjects/{subject}/groups/{group}/dead/reasons",
        "GET /v1/subjects/{subject}/groups/{group}/dead/{dead_id}",
    }
)
