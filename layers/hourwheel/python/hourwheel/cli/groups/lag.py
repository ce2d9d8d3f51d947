"""``hourwheel lag``"""

import sys
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer

from hourwheel.cli.output import table_of, text_of, write_json, write_line, write_table
from hourwheel.cli.settings import GroupArgument, SubjectArgument, connect, settings_of
from hourwheel.client import Api, GroupHistory, HistoryPage
from hourwheel.client.records.groups import Lag
from hourwheel.locks import Event
from hourwheel.model.lag import HeldKey
from hourwheel.wire.words import counted


def lag(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two counts.")] = 2.0,
    history: Annotated[bool, typer.Option("--history", help="Show the last hour, a line for each minute.")] = False,
) -> None:
    """Count the messages that a group has not settled. Numbers with a + lack those of a cell that is out of reach.

    Example: hourwheel lag orders billing
    """
    with connect(ctx) as api:
        if history:
            _show_history(ctx, api.history(subject, group=group))
        elif watch:
            _watch(ctx, api, subject, group, interval)
        else:
            _show(ctx, api.lag(subject, group))


def _show(ctx: typer.Context, lag: Lag) -> None:
    if settings_of(ctx).json:
        write_json(lag)
        return
    if lag.queues:
        write_table(_columns(lag), _rows(lag))
    if lag.consumers:
        write_table(_CONSUMER_COLUMNS, _consumer_rows(lag))
    write_line(_summary(lag))


def _show_history(ctx: typer.Context, page: HistoryPage) -> None:
    if settings_of(ctx).json:
        write_json(page)
        return
    for kept in page.groups:
        write_table(_HISTORY_COLUMNS, _history_rows(kept))
    if page.since is None:
        write_line("this server keeps no history")
    elif not page.groups:
        write_line(f"the group has not moved within an hour, or since the server began at {_clock(page.since)}")
    else:
        write_line(f"kept in the memory of the server since {_clock(page.since)}")


def _history_rows(kept: GroupHistory) -> list[tuple[Any, ...]]:
    times = [f"{at:%H:%M}Z" for at in kept.at]
    numbers = kept.accepted_per_second, kept.pulled_per_second, kept.waiting, kept.oldest_seconds, kept.dead
    return list(zip(times, *numbers, strict=True))


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}Z"


def _watch(ctx: typer.Context, api: Api, subject: str, group: str, interval: float) -> None:
    pause = Event()  # never set: only Ctrl-C ends this
    if settings_of(ctx).json or not sys.stdout.isatty():  # a live display writes nothing into a pipe until it ends
        while True:
            _show(ctx, api.lag(subject, group))
            pause.wait(interval)
    from rich.console import Group
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            current = api.lag(subject, group)
            live.update(Group(table_of(_columns(current), _rows(current)), _summary(current)), refresh=True)
            pause.wait(interval)


_NAMED = 10  # held keys: as many as a screen has room for below the table of queues

_HISTORY_COLUMNS = ["time", "accepted/s", "pulled/s", "waiting", "oldest s", "dead"]
_COLUMNS = ["queue", "waiting", "in flight", "offset", "end"]
_CONSUMER_COLUMNS = ["consumer", "waiting", "in flight", "retrying", "backing off", "dead", "expired unread"]


def _consumer_rows(lag: Lag) -> list[tuple[Any, ...]]:
    return [
        (
            row.consumer,
            row.waiting,
            row.in_flight,
            row.retrying,
            row.backing_off,
            row.dead,
            row.expired_unread,
        )
        for row in lag.consumers
    ]


def _rows(lag: Lag) -> list[tuple[Any, ...]]:
    if not _is_partial(lag):
        return [(row.queue, row.waiting, row.in_flight, row.offset, row.end) for row in lag.queues]
    return [
        (
            row.queue,
            _at_least(row.waiting, row.cells_out),
            _at_least(row.in_flight, row.cells_out),
            row.offset,
            row.end,
            row.cells_out or None,
        )
        for row in lag.queues
    ]


def _columns(lag: Lag) -> list[str]:
    return [*_COLUMNS, *(["cells out of reach"] if _is_partial(lag) else [])]


def _is_partial(lag: Lag) -> bool:
    """Returns whether a queue has messages in a cell that is offline or does not answer."""
    return any(row.cells_out for row in lag.queues)


def _at_least(number: int, cells_out: list[str]) -> str:
    return f"{number}+" if cells_out else str(number)


def _summary(lag: Lag) -> str:
    oldest = "" if lag.oldest_at is None else f", the oldest of {lag.oldest_at:%Y-%m-%d %H:%M:%S}Z"
    behind = f"{lag.waiting} waiting, {lag.in_flight} in flight"
    limited = "" if lag.limited_by is None else f"; limited by: {lag.limited_by}"
    stopped = "" if lag.held is None else f", {lag.held.stopped} stopped"
    expired = f", {lag.expired_unread} expired unread" if lag.expired_unread else ""
    counts = f"{behind}, {lag.retrying} retrying, {lag.backing_off} backing off{stopped}, {lag.dead} dead{expired}"
    return f"{counts}{oldest}{limited}{_not_counted(lag)}{_held(lag)}"


def _not_counted(lag: Lag) -> str:
    """Returns a line that names the cells whose messages are not counted; "" where all are."""
    if not lag.cells_out:
        return ""
    noun = "cell" if len(lag.cells_out) == 1 else "cells"
    return (
        f"\nnot counted: messages in {noun} {', '.join(lag.cells_out)}, offline or out of reach (hourwheel cell list)"
    )


def _held(lag: Lag) -> str:
    """Returns a line about the held keys of an ordered group, and one for each of the first 10; "" for other groups."""
    if lag.held is None:
        return ""
    lines = [f"{counted(lag.held.keys, 'held key')}, {counted(lag.held.parked, 'parked message')}"]
    if lag.held.full:
        lines.append(f"full of held keys, so waiting: queue {', '.join(map(str, lag.held.full))}")
    if lag.held.full_of_messages:
        lines.append(f"full of parked messages, so waiting: queue {', '.join(map(str, lag.held.full_of_messages))}")
    for held_key in lag.held.first[:_NAMED]:
        state = _stopped(held_key) if held_key.stopped else f"attempt {held_key.attempt} at {_time(held_key.due_at)}"
        key = "no key" if held_key.key is None else f"key {held_key.key}"
        lines.append(f"{key}: queue {held_key.queue} offset {held_key.offset}, {state}, {held_key.behind} behind")
    return "\n" + "\n".join(lines)


def _time(due_at: str | None) -> str:
    return "-" if due_at is None else text_of(msgspec.convert(due_at, datetime))


def _stopped(key: HeldKey) -> str:
    """Returns that the key has stopped, and why the last attempt of its first message failed."""
    why = {"attempts": "attempts used up", "rejected": "rejected"}.get(key.reason or "")
    detail = "" if key.detail is None else f": {key.detail}"
    return "stopped" if why is None else f"stopped ({why}{detail})"
