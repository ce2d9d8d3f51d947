"""Fills the queues of a shop as an operator finds them on a working day: the scene of the console's tests and
screenshot."""

import json
import sys
from collections.abc import Sequence
from typing import Any, Protocol

PAYMENTS = 12
SHIPMENTS = 3
"""How many dead letters the group ``orders/billing`` has, by the reason that its consumer said."""

HOSTILE = '<img src=x onerror="window.stolen=1"><script>window.stolen=1</script>\'"&amp;'
ESCAPES = "\x1b[31mred\x1b[0m \x07\x00\u202egnp.exe\u2028"
STRANGE_NAMES = ("__proto__", "constructor", "...", "-._-", "A-Z.a_z-0.9", "hasOwnProperty", "n" * 100)


class Caller(Protocol):
    def ok(self, method: str, path: str, body: Any = None) -> Any: ...


def send(caller: Caller, subject: str, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = caller.ok("POST", f"/v1/subjects/{subject}/messages", {"messages": list(messages)})
    return list(answer["results"])


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"order-{number}",
            "key": f"customer-{number % 17}",
            "tags": ["eu" if number % 3 else "us"],
            "headers": {"trace": f"t-{number:04}"},
            "body": json.dumps({"order": number, "total": f"{number * 7 % 90 + 9}.90", "items": number % 5 + 1}),
        }
        for number in range(first, first + count)
    ]


def fill(caller: Caller) -> list[str]:
    """Fills an empty server. Returns the scheduled ids of the delayed messages of ``reminders``."""
    caller.ok("PUT", "/v1/subjects/orders", {"queues": 2})
    for group, settings in {
        "billing": {"max_attempts": 3, "retry": {"delays_seconds": [3600]}},
        "mail": {},
        "search": {"max_in_flight": 500},
    }.items():
        caller.ok("PUT", f"/v1/subjects/orders/groups/{group}", settings)
    send(caller, "orders", orders(1, 120))
    _bill(caller)
    _pull(caller, "orders", "mail", "mail-1", count=120, settle={})
    caller.ok("POST", "/v1/subjects/orders/groups/search/pause")
    scheduled = _remind(caller)
    _others(caller)
    return scheduled


def fill_hostile(caller: Caller) -> None:
    """Adds messages and names that try to become markup, terminal commands or properties of JavaScript's objects."""
    caller.ok("PUT", "/v1/subjects/hostile", {"queues": 1})
    caller.ok("PUT", "/v1/subjects/hostile/groups/victims", {"retry": {"delays_seconds": [3600]}})
    mean = {"id": "mean-1", "key": HOSTILE, "tags": [HOSTILE[:64]], "headers": {"<b>x</b>": HOSTILE}, "body": HOSTILE}
    json_body = {"id": "mean-json", "body": json.dumps({HOSTILE: [HOSTILE, {"deep": HOSTILE}]})}
    escapes = {"id": "escapes", "key": "e", "headers": {"escape": ESCAPES}, "body": ESCAPES}
    binary = {"id": "binary", "body_base64": "AAECA//+"}
    large = {"id": "large", "body": "x" * 1_048_000}
    results = send(caller, "hostile", [mean, json_body, escapes, binary])
    send(caller, "hostile", [large])
    count = len(results)
    _pull(caller, "hostile", "victims", "v-1", count=count, settle={"dead": [_why(i, HOSTILE) for i in range(count)]})
    for name in STRANGE_NAMES:
        caller.ok("PUT", f"/v1/subjects/{name}/groups/{name}", {})
        send(caller, name, [{"body": "here"}])


def _bill(caller: Caller) -> None:
    """Gives the group ``billing`` messages in each state: settled, in flight, retrying, dead for two reasons, and
    waiting."""
    receipts = _pull(caller, "orders", "billing", "billing-1", count=60)
    dead = 0
    for pulled in receipts:
        indexes = range(len(pulled["messages"]))
        share = [i for i in indexes if i % 4 == 0][: PAYMENTS + SHIPMENTS - dead]
        reasons = [
            _why(i, "the card was refused" if dead + place < PAYMENTS else "no address to ship to")
            for place, i in enumerate(share)
        ]
        dead += len(share)
        retry = [i for i in indexes if i % 4 == 1][:3]
        _settle(caller, "orders", "billing", {"receipt": pulled["receipt"], "dead": reasons, "retry": retry})
    _pull(caller, "orders", "billing", "billing-2", count=10, lease_seconds=3600)


def _remind(caller: Caller) -> list[str]:
    delays = ["20m", "40m", "2h", "2h", "5h", "9h", "1d", "30d", "365d", "700d"]
    messages = [
        {"id": f"reminder-{i}", "key": f"customer-{i}", "body": f"reminder {i}", "delay": delay}
        for i, delay in enumerate(delays)
    ]
    return [result["scheduled_id"] for result in send(caller, "reminders", messages)]


def _others(caller: Caller) -> None:
    caller.ok("PUT", "/v1/subjects/reminders/groups/mail", {})
    send(caller, "shipments", [{"id": f"shipment-{i}", "body": f'{{"parcel": {i}}}'} for i in range(40)])
    caller.ok("PUT", "/v1/subjects/shipments/groups/tracking", {})
    _pull(caller, "shipments", "tracking", "tracking-1", count=25, settle={})
    caller.ok("PUT", "/v1/subjects/invoices-2025", {"read_only": True})
    caller.ok("PUT", "/v1/subjects/invoices-2025/groups/audit", {})


def _pull(
    caller: Caller,
    subject: str,
    group: str,
    consumer: str,
    *,
    count: int,
    lease_seconds: int = 600,
    settle: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Pulls this many messages, and settles each pull so, unless ``settle`` is None. Returns the pulls."""
    path = f"/v1/subjects/{subject}/groups/{group}/pull"
    pulls: list[dict[str, Any]] = []
    while (left := count - sum(len(one["messages"]) for one in pulls)) > 0:
        request = {"consumer": consumer, "max_messages": min(left, 100), "lease_seconds": lease_seconds}
        got = caller.ok("POST", path, request)["pulls"]
        assert got, f"{subject}/{group} lacks {left} messages"
        pulls += got
    for pulled in pulls:
        if settle is not None:
            _settle(caller, subject, group, {"receipt": pulled["receipt"], **settle})
    return pulls


def _settle(caller: Caller, subject: str, group: str, settlement: dict[str, Any]) -> None:
    (result,) = caller.ok("POST", f"/v1/subjects/{subject}/groups/{group}/ack", {"settle": [settlement]})["results"]
    assert result["status"] == "settled", result


def _why(index: int, detail: str) -> dict[str, Any]:
    return {"index": index, "detail": detail}


def main() -> None:
    from tests.integration.process import Connection

    with Connection(int(sys.argv[1])) as connection:
        fill(connection)
        fill_hostile(connection)


if __name__ == "__main__":
    main()
