"""Producer and consumer.

    from hourwheel.client import Consumer, Producer

    with Producer("http://127.0.0.1:7420", subject="orders") as producer:
        producer.send("paid", key="customer-42")

    with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
        for message in messages:
            print(message.body)

``Api`` has every call of the HTTP API, one method each.
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
    Problem,
    Reject,
    ServerFault,
    ServerUnavailable,
    TooLarge,
    Unauthorized,
)
from hourwheel.client.ledger import Delivery
from hourwheel.client.producer import Producer
from hourwheel.client.records import (
    AddressedMessage,
    DeadLetter,
    DeadSelection,
    Message,
    Position,
    Pull,
    Pulled,
    Received,
)
from hourwheel.model import Placed, Settled, Settlement

__all__ = [
    "DEFAULT_URL",
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
    "Message",
    "NotFound",
    "Placed",
    "Position",
    "Problem",
    "Producer",
    "Pull",
    "Pulled",
    "Received",
    "Reject",
    "ServerFault",
    "ServerUnavailable",
    "Settled",
    "Settlement",
    "TooLarge",
    "Unauthorized",
]
