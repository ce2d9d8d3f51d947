"""Producer and consumer.

    from hourwheel.client import Consumer, Producer

    with Producer("http://127.0.0.1:7420", subject="orders") as producer:
        producer.send("paid", key="customer-42")

    with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
        for message in messages:
            print(message.body)

Messages may be delayed, and looked up, moved and cancelled until they are due:

    placed = producer.send("remind", delay="90d").result()
    with Api("http://127.0.0.1:7420") as api:
        api.cancel(placed.scheduled_id)

``Api`` has every call of the HTTP API, one method each. ``hourwheel.client.webhooks`` checks what a group with a
push target was sent over HTTPS.
"""

from hourwheel.client.api import DEFAULT_URL, Api
from hourwheel.client.consumer import Consumer
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
from hourwheel.client.ledger import Delivery
from hourwheel.client.producer import Producer
from hourwheel.client.records import (
    NO_PUSH,
    AddressedMessage,
    DeadLetter,
    DeadSelection,
    Forecast,
    ForecastHour,
    Message,
    Orphan,
    Placed,
    Position,
    Pull,
    Pulled,
    PushStatus,
    PushTarget,
    Received,
    RetryPolicy,
    ScheduledMessage,
)
from hourwheel.model import RetryLater, Settled, Settlement

__all__ = [
    "DEFAULT_URL",
    "NO_PUSH",
    "AddressedMessage",
    "AnswerError",
    "Api",
    "BadRequest",
    "ClientError",
    "Closed",
    "Conflict",
    "Consumer",
    "DeadLetter",
    "DeadSelection",
    "Delivery",
    "DeliveryTimeout",
    "Forecast",
    "ForecastHour",
    "Message",
    "NotFound",
    "NotSent",
    "Orphan",
    "Placed",
    "Position",
    "Problem",
    "Producer",
    "Pull",
    "Pulled",
    "PushStatus",
    "PushTarget",
    "Received",
    "Reject",
    "Retry",
    "RetryLater",
    "RetryPolicy",
    "ScheduledMessage",
    "ServerFault",
    "ServerUnavailable",
    "Settled",
    "Settlement",
    "TooLarge",
    "Unauthorized",
]
