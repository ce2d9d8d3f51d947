"""Sends and receives messages, and administers subjects and groups, over the HTTP API.

``Producer`` sends messages in batches. ``Consumer`` hands them to a handler or a loop. ``Api`` makes every call of the
HTTP API. ``AsyncProducer``, ``AsyncConsumer`` and ``AsyncApi`` do so in the tasks of asyncio.
``hourwheel.client.webhooks`` checks the deliveries of groups that push over HTTPS.

The examples of this package assume ``api = Api()``, a subject ``orders`` that holds one message with the body ``paid``,
and a group ``billing``.
"""

from typing import TYPE_CHECKING, Any

from hourwheel.client.api import DEFAULT_URL, Api
from hourwheel.client.consuming.consumer import Consumer
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.errors import (
    AnswerError,
    BadRequest,
    ClientError,
    Closed,
    Conflict,
    DeliveryTimeout,
    NotFound,
    NotSent,
    Problem,
    Reject,
    Retry,
    ServerFault,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
)
from hourwheel.client.producing.producer import Producer
from hourwheel.client.records.attention import AttentionPage, Concern
from hourwheel.client.records.dead import DeadLetter, DeadPage, DeadSelection, Orphan, OrphanPage
from hourwheel.client.records.groups import (
    NO_FILTER,
    NO_PUSH,
    ConsumerState,
    ConsumerStates,
    Group,
    GroupHistory,
    GroupPage,
    HistoryPage,
    Lag,
    LeaveResult,
    PushStatus,
    PushTarget,
    QueueOffset,
    RetryPolicy,
    TagFilter,
)
from hourwheel.client.records.health import CreatedGrant, Health
from hourwheel.client.records.messages import AddressedMessage, Message, Pull, Pulled, Received, SendResult
from hourwheel.client.records.overview import (
    ArchiveState,
    AttemptCount,
    BucketWheel,
    BucketWheels,
    DeadReason,
    DeadReasons,
    DueCount,
    DueCounts,
    EarlyRetries,
    GroupOverview,
    GroupOverviewPage,
    LakeState,
    LakeTable,
    LatenessStep,
    OpenLease,
    OpenLeases,
    OverviewPage,
    QueueOverview,
    Reconciliation,
    ReportPage,
    RetryCounts,
    SubjectOverview,
)
from hourwheel.client.records.peek import DamagedRow, PeekPage, QueueMessage
from hourwheel.client.records.scheduled import (
    ChosenPage,
    DelayedMessage,
    DelayedPage,
    DelayedSelection,
    PendingCounts,
    PendingHour,
    ScheduledMessage,
)
from hourwheel.client.records.subjects import Subject, SubjectPage
from hourwheel.client.records.trace import GroupTrace, MessageTrace, TraceEvent, TracePage
from hourwheel.model.lag import ConsumerLag, QueueLag
from hourwheel.model.pulls import Rejection, RetryLater, Settled, Settlement
from hourwheel.model.route_records import (
    CellContent,
    CellDescription,
    DrainResult,
    LostPart,
    QueueRoute,
    RemovedCell,
    RouteMapping,
    RouteStep,
    SubjectRoute,
    UnmovedQueue,
)

if TYPE_CHECKING:
    from hourwheel.client.aio.api import AsyncApi
    from hourwheel.client.aio.consumer import AsyncConsumer
    from hourwheel.client.aio.producer import AsyncProducer

__all__ = [
    "CellContent",
    "CellDescription",
    "DrainResult",
    "LostPart",
    "QueueRoute",
    "RemovedCell",
    "RouteMapping",
    "RouteStep",
    "SubjectRoute",
    "UnmovedQueue",
    "DEFAULT_URL",
    "NO_FILTER",
    "NO_PUSH",
    "AddressedMessage",
    "AnswerError",
    "Api",
    "ArchiveState",
    "AttentionPage",
    "Concern",
    "AsyncApi",
    "AttemptCount",
    "AsyncConsumer",
    "AsyncProducer",
    "BadRequest",
    "ClientError",
    "Closed",
    "Conflict",
    "Consumer",
    "ConsumerLag",
    "CreatedGrant",
    "ConsumerState",
    "ConsumerStates",
    "DamagedRow",
    "DeadLetter",
    "DeadPage",
    "DeadReason",
    "DeadReasons",
    "DeadSelection",
    "DelayedMessage",
    "ChosenPage",
    "DelayedPage",
    "DelayedSelection",
    "Delivery",
    "DeliveryTimeout",
    "DueCounts",
    "EarlyRetries",
    "DueCount",
    "LakeState",
    "LakeTable",
    "LatenessStep",
    "LeaveResult",
    "PeekPage",
    "QueueMessage",
    "PendingCounts",
    "PendingHour",
    "Group",
    "GroupTrace",
    "GroupHistory",
    "GroupOverview",
    "GroupOverviewPage",
    "HistoryPage",
    "GroupPage",
    "Health",
    "Lag",
    "Message",
    "MessageTrace",
    "NotFound",
    "NotSent",
    "OpenLease",
    "OpenLeases",
    "Orphan",
    "OrphanPage",
    "OverviewPage",
    "QueueOverview",
    "SendResult",
    "QueueOffset",
    "Problem",
    "Producer",
    "Pull",
    "Pulled",
    "PushStatus",
    "PushTarget",
    "QueueLag",
    "Received",
    "Reconciliation",
    "Reject",
    "Rejection",
    "ReportPage",
    "Retry",
    "RetryCounts",
    "RetryLater",
    "RetryPolicy",
    "ScheduledMessage",
    "ServerFault",
    "ServerUnavailable",
    "Settled",
    "Settlement",
    "Subject",
    "SubjectOverview",
    "SubjectPage",
    "TagFilter",
    "TooLarge",
    "TraceEvent",
    "TracePage",
    "Unauthorized",
    "BucketWheel",
    "BucketWheels",
]

_ASYNC = {"AsyncApi": "api", "AsyncConsumer": "consumer", "AsyncProducer": "producer"}


def __getattr__(name: str) -> Any:
    """Imports a class for asyncio when a program first asks for it: programs with threads alone do not load asyncio."""
    if name not in _ASYNC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    kind = globals()[name] = getattr(import_module(f"hourwheel.client.aio.{_ASYNC[name]}"), name)
    return kind
