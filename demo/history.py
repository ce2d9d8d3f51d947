"""Keeps the records of the consumers: one JSON line for each handled message, one file for each consumer."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar
from zlib import crc32

Line = TypeVar("Line")


@dataclass(frozen=True)
class Handled:
    """The record of a message that a consumer handled, with or without success. ``at``: the time, in seconds. ``crc``:
    the checksum of the received body."""

    consumer: str
    id: str
    attempt: int
    ok: bool
    crc: int
    at: float


@dataclass(frozen=True)
class Account:
    """The account of a group. ``pending``: accepted messages that are neither handled nor dead. ``wrong``: errors."""

    group: str
    accepted: int
    delivered: int
    redelivered: int
    died: int
    dead: int
    pending: int
    per_second: float
    wrong: tuple[str, ...]


def write(file: TextIO, line: Any) -> None:
    """Appends a record and hands it to the operating system, so that a kill does not lose it."""
    file.write(json.dumps(list(vars(line).values())) + "\n")
    file.flush()


def read(folder: Path, group: str, kind: type[Line]) -> list[Line]:
    """Returns all records of a group's consumers, without a line that a kill cut off."""
    lines = []
    for path in sorted(folder.glob(f"{group}-*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                lines.append(kind(*json.loads(line)))
    return lines


def account(
    group: str,
    accepted: dict[str, str],
    handled: Iterable[Handled],
    *,
    died: set[str],
    dead: set[str],
    killed: str | None = None,
    expected_dead: Set[str] = frozenset(),
) -> Account:
    """Returns the account of a group. ``accepted``: bodies by ids. ``died`` and ``dead``: the ids of dead letters in
    between and at the end. ``killed``: the consumer that was killed."""
    by_id: dict[str, list[Handled]] = defaultdict(list)
    for line in handled:
        by_id[line.id].append(line)
    lines = [line for of_message in by_id.values() for line in of_message]
    done = {message for message, of_message in by_id.items() if any(line.ok for line in of_message)}
    pending = accepted.keys() - done - dead
    wrong = []
    if pending:
        wrong.append(f"{len(pending)} lost or unaccounted for")
    if strangers := by_id.keys() - accepted.keys():
        wrong.append(f"{len(strangers)} delivered that nobody sent")
    if altered := [line for line in lines if line.id in accepted and line.crc != crc32(accepted[line.id].encode())]:
        wrong.append(f"{len(altered)} with another body than was sent")
    twice = [
        of_message
        for of_message in by_id.values()
        if sum(line.ok and line.consumer != killed for line in of_message) > 1
    ]
    if twice:
        wrong.append(f"{len(twice)} handled twice although nobody died")
    if died != expected_dead:
        wrong.append(f"{len(died ^ expected_dead)} dead letters too many or too few")
    times = [line.at for line in lines]
    span = max(times, default=0.0) - min(times, default=0.0)
    return Account(
        group=group,
        accepted=len(accepted),
        delivered=len(by_id.keys() & accepted.keys()),
        redelivered=sum(count - 1 for count in Counter(line.id for line in lines).values()),
        died=len(died),
        dead=len(dead),
        pending=len(pending),
        per_second=round(len(lines) / span, 1) if span else 0.0,
        wrong=tuple(wrong),
    )
