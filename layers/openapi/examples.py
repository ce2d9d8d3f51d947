"""Shows a request and its answer for the calls that most callers begin with."""

from typing import Any, NamedTuple

_ID, _SCHEDULED_ID = "order-7", "6d2e5c10-60-0-17-2-3f0a9c1d5b7e2468"
_RECEIPT = "AQxvcmRlcnN_MS9iaWxsaW5nAAAAAAAAABE"
_PRODUCED, _DUE, _LEASED = "2026-11-20T09:00:00.000Z", "2027-02-18T09:00:00.000Z", "2026-11-20T09:00:30.000Z"


class Example(NamedTuple):
    """The body of a request, and the body of its answer."""

    request: dict[str, Any]
    answer: dict[str, Any]


_MESSAGES: list[dict[str, Any]] = [
    {"body": "order 7", "id": _ID, "key": "customer-42"},
    {"body": "reminder", "delay": "90d"},
]
_RESULTS = [
    {"id": _ID, "queue": 0, "offset": 1041},
    {"id": "019ac3f0-2", "scheduled": _DUE, "scheduled_id": _SCHEDULED_ID},
]
_PULLED = {
    "receipt": _RECEIPT,
    "queue": 0,
    "lease_until": _LEASED,
    "messages": [
        {
            "id": _ID,
            "queue": 0,
            "offset": 1041,
            "attempt": 1,
            "produced_at": _PRODUCED,
            "body": "order 7",
            "key": "customer-42",
        }
    ],
}

EXAMPLES = {
    "produce": Example({"messages": _MESSAGES}, {"results": _RESULTS}),
    "produce_many": Example(
        {"messages": [{"subject": "orders", **message} for message in _MESSAGES]}, {"results": _RESULTS}
    ),
    "pull": Example(
        {"consumer": "host-1", "max_messages": 100, "wait_seconds": 20, "lease_seconds": 30}, {"pulls": [_PULLED]}
    ),
    "settle": Example(
        {"settle": [{"receipt": _RECEIPT, "ack": [0], "retry": [{"index": 1, "delay": "5m"}]}]},
        {"results": [{"status": "settled"}]},
    ),
}
"""The examples, by the name of the operation. Each parses as its type."""
