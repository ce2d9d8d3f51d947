"""Names the types of each call: those that parse its request on the server, and its answer in the client."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from hourwheel.api import queries
from hourwheel.api.control import bodies
from hourwheel.client import (
    ArchiveState,
    BucketWheels,
    CellDescription,
    ConsumerState,
    DeadLetter,
    DeadPage,
    DeadReasons,
    DelayedPage,
    DrainResult,
    DueCounts,
    Group,
    GroupOverviewPage,
    GroupPage,
    Health,
    Lag,
    OpenLeases,
    OrphanPage,
    OverviewPage,
    PeekPage,
    PendingCounts,
    Pulled,
    PushStatus,
    QueueOffset,
    RemovedCell,
    RetryCounts,
    RouteStep,
    ScheduledMessage,
    SendResult,
    Subject,
    SubjectPage,
    SubjectRoute,
    TracePage,
)
from hourwheel.model.messages import ProduceManyRequest, ProduceRequest
from hourwheel.model.pulls import PullRequest, SettleRequest, SettleResult


class SendResults(Struct):
    results: list[SendResult]


class Cells(Struct):
    cells: list[CellDescription]


class Consumers(Struct):
    consumers: list[ConsumerState]


class Offsets(Struct):
    positions: list[QueueOffset]


class Released(Struct):
    released: int


class Decided(Struct):
    decided: int


class Deletion(Struct):
    cells_out: list[str]


class Redriven(Struct):
    redriven: int


class Dropped(Struct):
    dropped: int


class Operation(NamedTuple):
    """A call of the API. ``name`` is also the name of the method of ``Api`` whose docstring describes the call.

    ``answer``: None stands for an answer without content. ``partly``: such an answer has this content if the call could
    not do everything. ``links`` name operations that take a value of the answer.
    """

    name: str
    answer: Any = None
    body: Any = None
    query: Any = None
    body_required: bool = False
    partly: Any = None
    links: Mapping[str, dict[str, Any]] = MappingProxyType({})


_S = "/v1/subjects/{subject}"
_G = f"{_S}/groups/{{group}}"
_SAME = {"subject": "$request.path.subject", "group": "$request.path.group"}
_ID = {"parameters": {"id": "$response.body#/results/0/scheduled_id"}}
_SETTLES = {
    # Without a ``requestBody``: openapi-generator takes only text there, and no text is the body of a settlement.
    "description": 'Settle each pull by its receipt: `{"settle": [{"receipt": "…"}]}`.',
    "parameters": _SAME,
}
_BODIES: dict[str, Any] = {"body_required": True}

OPERATIONS: dict[str, Operation] = {
    "POST /v1/messages": Operation("produce_many", SendResults, ProduceManyRequest, **_BODIES),
    f"POST {_S}/messages": Operation(
        "produce",
        SendResults,
        ProduceRequest,
        **_BODIES,
        links=dict.fromkeys(("get_scheduled", "reschedule", "cancel"), _ID),
    ),
    f"POST {_G}/pull": Operation("pull", Pulled, PullRequest, **_BODIES, links={"settle": _SETTLES}),
    f"POST {_G}/ack": Operation("settle", SettleResult, SettleRequest, **_BODIES),
    "GET /v1/health": Operation("health", Health),
    "GET /v1/overview": Operation("overview", OverviewPage, query=queries.OverviewQuery),
    "GET /v1/subjects": Operation("list_subjects", SubjectPage, query=queries.PageQuery),
    f"GET {_S}": Operation("get_subject", Subject),
    f"PUT {_S}": Operation(
        "put_subject",
        Subject,
        bodies.SubjectBody,
        links={name: {"parameters": {"subject": _SAME["subject"]}} for name in ("get_subject", "produce", "get_route")},
    ),
    f"DELETE {_S}": Operation("delete_subject", partly=Deletion),
    f"POST {_S}/pause": Operation("pause_subject", Subject),
    f"POST {_S}/resume": Operation("resume_subject", Subject),
    f"GET {_S}/overview": Operation("subject_overview", GroupOverviewPage, query=queries.PageQuery),
    f"GET {_S}/groups": Operation("list_groups", GroupPage, query=queries.PageQuery),
    f"GET {_G}": Operation("get_group", Group),
    f"PUT {_G}": Operation(
        "put_group",
        Group,
        bodies.GroupBody,
        links={name: {"parameters": _SAME} for name in ("get_group", "pull", "lag", "seek", "list_dead", "redrive")},
    ),
    f"DELETE {_G}": Operation("delete_group", partly=Deletion),
    f"POST {_G}/pause": Operation("pause_group", Group),
    f"POST {_G}/resume": Operation("resume_group", Group),
    f"POST {_G}/seek": Operation("seek", Offsets, bodies.SeekBody, **_BODIES),
    f"GET {_G}/lag": Operation("lag", Lag),
    f"POST {_G}/held": Operation("decide_held", Decided, bodies.DecisionBody, **_BODIES),
    f"GET {_G}/push": Operation("push", PushStatus),
    f"GET {_G}/consumers": Operation("list_consumers", Consumers),
    f"POST {_G}/consumers/{{consumer}}/leave": Operation("leave", Released, query=queries.LeaveQuery),
    f"GET {_G}/leases": Operation("list_leases", OpenLeases),
    f"GET {_G}/retries": Operation("count_retries", RetryCounts),
    f"GET {_G}/dead": Operation("list_dead", DeadPage, query=queries.DeadQuery),
    f"GET {_G}/dead/reasons": Operation("dead_reasons", DeadReasons),
    f"DELETE {_G}/dead": Operation("drop", Dropped, bodies.SelectionBody, **_BODIES),
    f"POST {_G}/dead/redrive": Operation("redrive", Redriven, bodies.SelectionBody, **_BODIES),
    f"GET {_G}/dead/{{dead_id}}": Operation("get_dead", DeadLetter),
    f"GET {_S}/queues/{{queue}}/messages": Operation("peek", PeekPage, query=queries.PeekQuery),
    f"GET {_S}/messages/{{id}}": Operation("trace", TracePage, query=queries.TraceQuery),
    f"POST {_S}/queues": Operation("add_queues", RouteStep, bodies.QueuesBody, **_BODIES),
    f"POST {_S}/queues/{{queue}}/move": Operation("move_queue", RouteStep, bodies.MoveBody, **_BODIES),
    f"POST {_S}/spread": Operation("spread_queues", RouteStep, bodies.SpreadBody),
    "GET /v1/routes/{subject}": Operation("get_route", SubjectRoute),
    "DELETE /v1/routes/{subject}/pending": Operation("withdraw_route_changes", RouteStep, query=queries.WithdrawQuery),
    "GET /v1/cells": Operation("list_cells", Cells),
    "GET /v1/cells/{cell}": Operation("get_cell", CellDescription),
    "PUT /v1/cells/{cell}": Operation("put_cell", CellDescription, bodies.CellBody),
    "DELETE /v1/cells/{cell}": Operation("remove_cell", RemovedCell, query=queries.RemovalQuery),
    "POST /v1/cells/{cell}/drain": Operation("drain_cell", DrainResult, bodies.DrainBody),
    f"GET {_S}/scheduled": Operation("pending", PendingCounts, query=queries.PendingQuery),
    f"GET {_S}/delayed": Operation("list_subject_delayed", DelayedPage, query=queries.DelayedQuery),
    f"GET {_S}/dead": Operation("list_orphans", OrphanPage, query=queries.PageQuery),
    "GET /v1/scheduled": Operation("due", DueCounts, query=queries.DueQuery),
    "GET /v1/delayed": Operation("list_delayed", DelayedPage, query=queries.DelayedQuery),
    "GET /v1/wheels": Operation("wheels", BucketWheels),
    "GET /v1/archive": Operation("archive", ArchiveState),
    "GET /v1/scheduled/{id}": Operation("get_scheduled", ScheduledMessage),
    "PATCH /v1/scheduled/{id}": Operation("reschedule", ScheduledMessage, bodies.RescheduleBody, **_BODIES),
    "DELETE /v1/scheduled/{id}": Operation("cancel", ScheduledMessage),
    "GET /v1/openapi.json": Operation("openapi", dict[str, Any]),
}
