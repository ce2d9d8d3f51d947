"""Fills a server as an operator finds it after a year: twelve subjects, nineteen groups of every kind, thousands of
dead letters, delayed messages up to a year ahead, paused groups, held and stopped keys."""

import json
from typing import Any

from tests.console.scene import Caller, send

DEAD = 2_500
DELAYED = 400
_DAY = 86_400

GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "orders": {
        "billing": {"max_attempts": 3, "retry": {"delays_seconds": [3_600]}},
        "mail": {},
        "search": {"max_in_flight": 50},
        "fraud": {"messages_per_second": 2.0},
    },
    "payments": {
        "ledger": {"ordered": True, "max_attempts": 1, "when_dead": "stop", "retry": {"delays_seconds": [600]}},
        "bank": {"ordered": True, "retry": {"delays_seconds": [900]}},
        "audit": {},
    },
    "shipments": {"tracking": {}, "labels": {"filter": {"tags_any": ["eu"]}}, "screens": {"broadcast": True}},
    "reminders": {"mail": {}, "push": {}},
    "invoices": {"pdf": {}},
    "refunds": {"bank": {}},
    "returns": {"warehouse": {}},
    "stock": {"search": {}},
    "prices": {"search": {}},
    "users": {"crm": {}},
    "sessions": {"analytics": {}},
    "reports": {},
}
CONSUMED = (("orders", "mail"), ("shipments", "tracking"), ("users", "crm"), ("sessions", "analytics"))


def fill(caller: Caller) -> None:
    """Fills an empty server."""
    for subject, groups in GROUPS.items():
        caller.ok("PUT", f"/v1/subjects/{subject}", {"queues": 2 if subject == "orders" else 1})
        for group, settings in groups.items():
            caller.ok("PUT", f"/v1/subjects/{subject}/groups/{group}", settings)
    _bury(caller)
    _hold(caller)
    _delay(caller)
    _back_off(caller)
    for subject, count in {"orders": 900, "shipments": 60, "invoices": 1, "stock": 4_000, "sessions": 300}.items():
        for start in range(0, count, 500):
            send(caller, subject, [_message(subject, start + n) for n in range(min(500, count - start))])
    for subject, group in CONSUMED:
        consume(caller, subject, group)
    for subject, group in (("orders", "search"), ("returns", "warehouse")):
        caller.ok("POST", f"/v1/subjects/{subject}/groups/{group}/pause")
    caller.ok("POST", "/v1/subjects/prices/pause")
    caller.ok("PUT", "/v1/subjects/reports", {"read_only": True})


def consume(caller: Caller, subject: str, group: str) -> None:
    """Pulls and acknowledges everything that waits."""
    while _settle_pull(caller, subject, group, {}):
        pass


def _message(subject: str, number: int) -> dict[str, Any]:
    body = {"subject": subject, "number": number, "total": f"{number * 7 % 90 + 9}.90"}
    tags = ["eu" if number % 3 else "us"]
    return {"id": f"{subject}-{number}", "key": f"customer-{number % 41}", "tags": tags, "body": json.dumps(body)}


def _settle_pull(caller: Caller, subject: str, group: str, settlement: dict[str, Any], most: int = 100) -> int:
    path = f"/v1/subjects/{subject}/groups/{group}"
    got = caller.ok("POST", f"{path}/pull", {"consumer": f"{group}-1", "max_messages": most})["pulls"]
    for pulled in got:
        chosen = {name: each(len(pulled["messages"])) for name, each in settlement.items()}
        caller.ok("POST", f"{path}/ack", {"settle": [{"receipt": pulled["receipt"], **chosen}]})
    return sum(len(pulled["messages"]) for pulled in got)


def _bury(caller: Caller) -> None:
    """Leaves dead letters of four reasons to ``refunds/bank``."""
    details = ("the account is closed", "the bank does not answer", "no such order", "amount above the limit")
    for start in range(0, DEAD, 100):
        send(caller, "refunds", [_message("refunds", start + n) for n in range(100)])
        why = details[start // 100 % 4]
        dead = _settle_pull(
            caller,
            "refunds",
            "bank",
            {"dead": lambda count, why=why: [{"index": index, "detail": why} for index in range(count)]},
        )
        assert dead == 100


def _hold(caller: Caller) -> None:
    """Leaves three stopped keys to ``payments/ledger``, and held ones to ``payments/bank``."""
    send(caller, "payments", [_message("payments", n) for n in range(120)])
    for group in ("ledger", "bank"):
        _settle_pull(
            caller,
            "payments",
            group,
            {
                "retry": lambda count: [
                    {"index": index, "detail": "the bank is closed"} for index in range(min(3, count))
                ]
            },
        )


def _back_off(caller: Caller) -> None:
    """Leaves retries that wait for an hour to ``orders/billing``."""
    send(caller, "orders", [_message("orders", 10_000 + n) for n in range(80)])
    failed = ("the card was refused", "time-out after 30 s")
    _settle_pull(
        caller,
        "orders",
        "billing",
        {"retry": lambda count: [{"index": index, "detail": failed[index % 2]} for index in range(count)]},
    )


def _delay(caller: Caller) -> None:
    """Sends delayed messages up to a year ahead, more of them soon than late."""
    messages = []
    for number in range(DELAYED):
        seconds = 90 + int(365 * _DAY * (number / DELAYED) ** 4)
        messages.append({**_message("reminders", number), "delay": seconds})
    send(caller, "reminders", messages)
