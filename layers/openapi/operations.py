"""Names what each call of the API answers: the type that parses the answer in the client."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct

from hourwheel.client import (
    ArchiveState,
    AttentionPage,
    BucketWheels,
    CellDescription,
    ChosenPage,
    ConsumerState,
    DeadLetter,
    DeadPage,
    DeadReasons,
    DelayedPage,
    DrainResult,
    DueCounts,
    EarlyRetries,
    Group,
    GroupOverviewPage,
    GroupPage,
    Health,
    HistoryPage,
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
from hourwheel.model.pulls import SettleResult


class SendResults(Struct):
    results: list[SendResult]


class Cells(Struct):
    cells: list[CellDescription]


class Consumers(Struct):
    consumers: list[ConsumerState]
    cells_out: list[str]


class Offsets(Struct):
    positions: list[QueueOffset]


class Released(Struct):
    released: int
    cells_out: list[str]


class Decided(Struct):
    decided: int


class Deletion(Struct):
    cells_out: list[str]


class Redriven(Struct):
    redriven: int


class Dropped(Struct):
    dropped: int


class Operation(NamedTuple):
    """What a call answers. ``answer``: None stands for an answer without content. ``partly``: such an answer has this
    content if the call could not do everything. ``links`` name operations that take a value of the answer.
    """

    answer: Any = None
    partly: Any = None
    links: Mapping[str, dict[str, Any]] = MappingProxyType({})


_SAME = {"subject": "$request.path.subject", "group": "$request.path.group"}
_ID = {"parameters": {"id": "$response.body#/results/0/scheduled_id"}}
_SETTLES = {
    # Without a ``requestBody``: openapi-generator takes only text there, and no text is the body of a settlement.
    "description": 'Settle each pull by its receipt: `{"settle": [{"receipt": "…"}]}`.',
    "parameters": _SAME,
}

OPERATIONS: dict[str, Operation] = {
    "produce_many": Operation(SendResults),
    "produce": Operation(
        SendResults,
        links=dict.fromkeys(("get_scheduled", "reschedule", "cancel"), _ID),
    ),
    "pull": Operation(Pulled, links={"settle": _SETTLES}),
    "settle": Operation(SettleResult),
    "health": Operation(Health),
    "overview": Operation(OverviewPage),
    "attention": Operation(AttentionPage),
    "list_subjects": Operation(SubjectPage),
    "get_subject": Operation(Subject),
    "put_subject": Operation(
        Subject,
        links={name: {"parameters": {"subject": _SAME["subject"]}} for name in ("get_subject", "produce", "get_route")},
    ),
    "delete_subject": Operation(partly=Deletion),
    "pause_subject": Operation(Subject),
    "resume_subject": Operation(Subject),
    "subject_overview": Operation(GroupOverviewPage),
    "history": Operation(HistoryPage),
    "list_groups": Operation(GroupPage),
    "get_group": Operation(Group),
    "put_group": Operation(
        Group,
        links={name: {"parameters": _SAME} for name in ("get_group", "pull", "lag", "seek", "list_dead", "redrive")},
    ),
    "delete_group": Operation(partly=Deletion),
    "pause_group": Operation(Group),
    "resume_group": Operation(Group),
    "seek": Operation(Offsets),
    "lag": Operation(Lag),
    "decide_held": Operation(Decided),
    "push": Operation(PushStatus),
    "list_consumers": Operation(Consumers),
    "leave": Operation(Released),
    "list_leases": Operation(OpenLeases),
    "count_retries": Operation(RetryCounts),
    "retry_now": Operation(EarlyRetries),
    "list_dead": Operation(DeadPage),
    "dead_reasons": Operation(DeadReasons),
    "drop": Operation(Dropped),
    "redrive": Operation(Redriven),
    "get_dead": Operation(DeadLetter),
    "peek": Operation(PeekPage),
    "trace": Operation(TracePage),
    "add_queues": Operation(RouteStep),
    "move_queue": Operation(RouteStep),
    "spread_queues": Operation(RouteStep),
    "get_route": Operation(SubjectRoute),
    "withdraw_route_changes": Operation(RouteStep),
    "list_cells": Operation(Cells),
    "get_cell": Operation(CellDescription),
    "put_cell": Operation(CellDescription),
    "remove_cell": Operation(RemovedCell),
    "drain_cell": Operation(DrainResult),
    "pending": Operation(PendingCounts),
    "list_subject_delayed": Operation(DelayedPage),
    "list_orphans": Operation(OrphanPage),
    "due": Operation(DueCounts),
    "list_delayed": Operation(DelayedPage),
    "wheels": Operation(BucketWheels),
    "archive": Operation(ArchiveState),
    "get_scheduled": Operation(ScheduledMessage),
    "cancel_chosen": Operation(ChosenPage),
    "move_chosen": Operation(ChosenPage),
    "reschedule": Operation(ScheduledMessage),
    "cancel": Operation(ScheduledMessage),
    "openapi": Operation(dict[str, Any]),
}
