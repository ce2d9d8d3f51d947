"""Defines the records of the broker in memory: subjects, groups, leases and delayed messages."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Json = dict[str, Any]
NOW = "2026-11-20T09:00:00.000Z"
LONGEST = timedelta(days=732)
RETRY = {"first_seconds": 5, "factor": 2, "cap_seconds": 7_200}
PUSH = {"batch": 10, "concurrency": 2, "timeout_seconds": 30}
WAITS = ("delay", "deliver_at")
MESSAGE_FIELDS = {"body", "body_base64", "key", "tags", "headers", "id", "precision", *WAITS}
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Refusal(Exception):
    """Becomes a problem document."""

    def __init__(self, status: int, slug: str, detail: str = "", *, where: str | None = None) -> None:
        super().__init__(detail)
        self.problem = {"type": f"urn:hourwheel:{slug}", "title": slug, "status": status, "detail": detail or slug}
        self.problem["instance"] = "correlation-1"
        if where is not None:
            self.problem["field"] = where


@dataclass
class Lease:
    messages: list[Json]
    until: float
    suspect: bool = False
    left: set[int] = field(init=False)
    last: Json | None = None
    taken_over: bool = False

    def __post_init__(self) -> None:
        self.left = set(range(len(self.messages)))


@dataclass
class FakeGroup:
    start: str
    max_attempts: int
    positions: list[int]
    retry: Json = field(default_factory=lambda: RETRY)
    push: Json | None = None
    paused: bool = False
    max_in_flight: int = 0
    messages_per_second: float = 0
    ordered: bool = False
    retries: list[Json] = field(default_factory=list)
    suspects: list[Json] = field(default_factory=list)
    backing_off: list[tuple[Any, Json]] = field(default_factory=list)
    expired_unread: int = 0
    dead: list[Json] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)
    leases: dict[str, Lease] = field(default_factory=dict)


@dataclass
class FakeSubject:
    retention_seconds: int = 259_200
    clamp_delays: bool = False
    paused: bool = False
    read_only: bool = False
    queues: list[list[Json]] = field(default_factory=lambda: [[]])
    groups: dict[str, FakeGroup] = field(default_factory=dict)
    keys: dict[str, tuple[list[Json], Json]] = field(default_factory=dict)

    @property
    def bodies(self) -> list[str]:
        return [message["body"] for queue in self.queues for message in queue]


@dataclass
class FakeScheduled:
    """A delayed message. ``known``: the fields of the answer about it."""

    known: Json
    message: Json
    owner: FakeSubject


def limit_of(subject: FakeSubject, group: FakeGroup) -> str | None:
    """Returns the limit that keeps messages from the group."""
    return "subject_paused" if subject.paused else "paused" if group.paused else None


def due_of(request: Json) -> datetime | None:
    """Returns the due time of the message; None for at once."""
    now = datetime.fromisoformat(NOW)
    if "deliver_at" in request:
        due = datetime.fromisoformat(request["deliver_at"])
        return due if due > now else None
    delay = request.get("delay")
    if isinstance(delay, str):
        answer = re.fullmatch(r"([\d.]+)(ms|s|m|h|d)", delay)
        if answer is None:
            raise Refusal(400, "field-invalid", "delay is none", where="delay")
        delay = float(answer[1]) * _UNITS[answer[2]]
    return now + timedelta(seconds=delay) if delay else None


def text_of(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def delayed_page(scheduled: Iterable[FakeScheduled], query: Json) -> Json:
    known = {each.known["scheduled_id"]: {**each.known, **each.message} for each in scheduled}
    first, end = query.get("from", ""), query.get("to", "9999")
    span = (each for each in known.values() if first <= each["deliver_at"] < end)
    due = sorted((each for each in span if is_chosen(each, query)), key=lambda each: str(each["deliver_at"]))
    start, limit = int(query.get("after", 0)), int(query["limit"])
    hidden = set() if "bodies" in query else {"body", "body_base64"}
    page = [{name: each[name] for name in each if name not in hidden} for each in due[start : start + limit]]
    return {"messages": page, "next": str(start + limit) if len(due) > start + limit else None}


def is_chosen(message: Json, query: Json) -> bool:
    equal = all(query[name] == message.get(name) for name in ("key", "id") if name in query)
    return equal and ("tag" not in query or query["tag"] in message.get("tags", []))


def page_of(letters: list[Json], limit: int, after: str) -> Json:
    start = next((index + 1 for index, letter in enumerate(letters) if letter["dead_id"] == after), 0)
    page = letters[start : start + limit]
    return {"messages": page, "next": page[-1]["dead_id"] if len(letters) > start + limit else None}
