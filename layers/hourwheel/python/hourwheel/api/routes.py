"""Lists every route of the HTTP API: the function that serves it, the call that it makes, what it takes, and the scope
of the policies and tokens that allow it."""

from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from hourwheel.api.control import bodies, queries
from hourwheel.model.messages import ProduceManyRequest, ProduceRequest
from hourwheel.model.pulls import PullRequest, SettleRequest

Scope: TypeAlias = Literal["produce", "delayed", "consume", "seek", "pause", "dead letters"]
"""What a role or a token that is allowed nothing else may do."""


class NoQuery(Struct):
    """The query of a route that takes no parameter."""


class HttpRoute(NamedTuple):
    """A method and a path template, and the Lambda ``function`` that serves them."""

    method: str
    template: str
    function: str
    call: str = ""
    """The name of the method of the client that makes the call. Its docstring describes the route."""

    body: type[Struct] | None = None
    """The type of the body. A route without one refuses a body."""

    parameters: type[Struct] | None = NoQuery
    """The type of the query parameters. The route refuses every other one; with None it takes and ignores all, and a
    body too."""

    scope: Scope | None = None
    """The scope that allows the route; None: it is for operators."""

    needs_body: bool = True
    """Whether the body may not be left out, where the route takes one."""

    @property
    def query(self) -> tuple[str, ...] | None:
        """The names of the query parameters; None if the route ignores them."""
        return None if self.parameters is None else self.parameters.__struct_encode_fields__

    @property
    def dry_run_in_body(self) -> bool:
        """Whether a field of the body, not a parameter, asks for a dry run."""
        return self.body is not None and "dry_run" in self.body.__struct_fields__

    @property
    def key(self) -> str:
        """The name that API Gateway gives the route, and puts into events as ``routeKey``."""
        return f"{self.method} {self.template}"


_SUBJECT = "/v1/subjects/{subject}"
_GROUP = f"{_SUBJECT}/groups/{{group}}"
_QUEUE = f"{_SUBJECT}/queues/{{queue}}"
_SCHEDULED = "/v1/scheduled/{id}"
_CELL = "/v1/cells/{cell}"

ROUTES = (
    HttpRoute("POST", "/v1/messages", "produce", "produce_many", ProduceManyRequest),
    HttpRoute("POST", f"{_SUBJECT}/messages", "produce", "produce", ProduceRequest, scope="produce"),
    HttpRoute("POST", f"{_GROUP}/pull", "pull", "pull", PullRequest, scope="consume"),
    HttpRoute("POST", f"{_GROUP}/ack", "ack", "settle", SettleRequest, scope="consume"),
    HttpRoute("GET", "/v1/health", "meta", "health", parameters=None),
    HttpRoute("GET", "/v1/openapi.json", "meta", "openapi"),
    HttpRoute("GET", "/v1/overview", "meta", "overview", parameters=queries.OverviewQuery),
    HttpRoute("GET", "/v1/attention", "meta", "attention", parameters=queries.AttentionQuery),
    HttpRoute("GET", "/v1/subjects", "meta", "list_subjects", parameters=queries.PageQuery),
    HttpRoute("GET", _SUBJECT, "meta", "get_subject"),
    HttpRoute("PUT", _SUBJECT, "meta", "put_subject", bodies.SubjectBody, needs_body=False),
    HttpRoute("DELETE", _SUBJECT, "meta", "delete_subject"),
    HttpRoute("POST", f"{_SUBJECT}/pause", "meta", "pause_subject"),
    HttpRoute("POST", f"{_SUBJECT}/resume", "meta", "resume_subject"),
    HttpRoute("GET", f"{_SUBJECT}/overview", "meta", "subject_overview", parameters=queries.PageQuery),
    HttpRoute("GET", f"{_SUBJECT}/history", "meta", "history", parameters=queries.HistoryQuery),
    HttpRoute("GET", f"{_SUBJECT}/groups", "meta", "list_groups", parameters=queries.PageQuery),
    HttpRoute("GET", _GROUP, "meta", "get_group"),
    HttpRoute("PUT", _GROUP, "meta", "put_group", bodies.GroupBody, needs_body=False),
    HttpRoute("DELETE", _GROUP, "meta", "delete_group"),
    HttpRoute("POST", f"{_GROUP}/pause", "meta", "pause_group", scope="pause"),
    HttpRoute("POST", f"{_GROUP}/resume", "meta", "resume_group", scope="pause"),
    HttpRoute("POST", f"{_GROUP}/seek", "meta", "seek", bodies.SeekBody, scope="seek"),
    HttpRoute("GET", f"{_GROUP}/lag", "meta", "lag", scope="consume"),
    HttpRoute("POST", f"{_GROUP}/held", "meta", "decide_held", bodies.DecisionBody, scope="dead letters"),
    HttpRoute("GET", f"{_GROUP}/push", "meta", "push"),
    HttpRoute("GET", f"{_GROUP}/consumers", "meta", "list_consumers"),
    HttpRoute("POST", f"{_GROUP}/consumers/{{consumer}}/leave", "meta", "leave", parameters=queries.LeaveQuery),
    HttpRoute("GET", f"{_GROUP}/leases", "meta", "list_leases"),
    HttpRoute("GET", f"{_GROUP}/retries", "meta", "count_retries"),
    HttpRoute("POST", f"{_GROUP}/retries", "meta", "retry_now", bodies.EarlyRetryBody),
    HttpRoute("GET", f"{_GROUP}/dead", "meta", "list_dead", parameters=queries.DeadQuery, scope="dead letters"),
    HttpRoute("DELETE", f"{_GROUP}/dead", "meta", "drop", bodies.SelectionBody, scope="dead letters"),
    HttpRoute("POST", f"{_GROUP}/dead/redrive", "meta", "redrive", bodies.SelectionBody, scope="dead letters"),
    HttpRoute("GET", f"{_GROUP}/dead/reasons", "meta", "dead_reasons", scope="dead letters"),
    HttpRoute("GET", f"{_GROUP}/dead/{{dead_id}}", "meta", "get_dead", scope="dead letters"),
    HttpRoute("GET", f"{_QUEUE}/messages", "meta", "peek", parameters=queries.PeekQuery),
    HttpRoute("GET", f"{_SUBJECT}/messages/{{id}}", "meta", "trace", parameters=queries.TraceQuery),
    HttpRoute("POST", f"{_SUBJECT}/queues", "meta", "add_queues", bodies.QueuesBody),
    HttpRoute("POST", f"{_QUEUE}/move", "meta", "move_queue", bodies.MoveBody),
    HttpRoute("POST", f"{_SUBJECT}/spread", "meta", "spread_queues", bodies.SpreadBody, needs_body=False),
    HttpRoute("GET", "/v1/routes/{subject}", "meta", "get_route"),
    HttpRoute(
        "DELETE", "/v1/routes/{subject}/pending", "meta", "withdraw_route_changes", parameters=queries.WithdrawQuery
    ),
    HttpRoute("GET", "/v1/cells", "meta", "list_cells"),
    HttpRoute("GET", _CELL, "meta", "get_cell"),
    HttpRoute("PUT", _CELL, "meta", "put_cell", bodies.CellBody, needs_body=False),
    HttpRoute("DELETE", _CELL, "meta", "remove_cell", parameters=queries.RemovalQuery),
    HttpRoute("POST", f"{_CELL}/drain", "meta", "drain_cell", bodies.DrainBody, needs_body=False),
    HttpRoute("GET", f"{_SUBJECT}/scheduled", "meta", "pending", parameters=queries.PendingQuery, scope="delayed"),
    HttpRoute(
        "GET", f"{_SUBJECT}/delayed", "meta", "list_subject_delayed", parameters=queries.DelayedQuery, scope="delayed"
    ),
    HttpRoute("POST", f"{_SUBJECT}/delayed/cancel", "meta", "cancel_chosen", bodies.ChoiceBody, scope="delayed"),
    HttpRoute("POST", f"{_SUBJECT}/delayed/move", "meta", "move_chosen", bodies.ChoiceMoveBody, scope="delayed"),
    HttpRoute("GET", f"{_SUBJECT}/dead", "meta", "list_orphans", parameters=queries.PageQuery),
    HttpRoute("GET", "/v1/scheduled", "meta", "due", parameters=queries.DueQuery),
    HttpRoute("GET", "/v1/delayed", "meta", "list_delayed", parameters=queries.DelayedQuery),
    HttpRoute("GET", "/v1/wheels", "meta", "wheels"),
    HttpRoute("GET", "/v1/archive", "meta", "archive"),
    HttpRoute("GET", _SCHEDULED, "meta", "get_scheduled", scope="delayed"),
    HttpRoute("PATCH", _SCHEDULED, "meta", "reschedule", bodies.RescheduleBody, scope="delayed"),
    HttpRoute("DELETE", _SCHEDULED, "meta", "cancel", scope="delayed"),
)


def keys_of(scope: Scope) -> frozenset[str]:
    """Returns the keys of the routes that a scope allows."""
    return frozenset(route.key for route in ROUTES if route.scope == scope)
