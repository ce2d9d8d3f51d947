"""``hourwheel message …``"""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from hourwheel.cli.output import text_of, write_error, write_json, write_line, write_table
from hourwheel.cli.settings import SubjectArgument, connect, moment, settings_of
from hourwheel.client import Api, BadRequest, GroupTrace, MessageTrace, NotFound

app = typer.Typer(no_args_is_help=True, help="Show where messages are, and what groups did with them.")

_FORGOTTEN = ("settled", "expired", "unknown")
"""States of messages for which the server no longer has the whole history."""

GroupOption = Annotated[str | None, typer.Option(help="Only this group (by default the first 20).")]


@app.command()
def show(
    ctx: typer.Context,
    subject: SubjectArgument,
    message: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="QUEUE:OFFSET, a scheduled id, or an id that the server gave.")
    ],
    group: GroupOption = None,
) -> None:
    """Show where a message is, and what each group did with it.

    Example: hourwheel message show orders 0:0
    """
    with connect(ctx) as api, _lake_hint(subject, message) as traces, _find_hint(subject, message):
        traces += _all(api, subject, message, None, None, group)
        _show(ctx, traces)


@app.command()
def find(
    ctx: typer.Context,
    subject: SubjectArgument,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id that the sender gave the message.")],
    since: Annotated[str, typer.Option("--from", help="Accepted at this time or later, such as 2026-11-20T09:00:00Z.")],
    until: Annotated[str | None, typer.Option("--to", help="Accepted before this time.")] = None,
    group: GroupOption = None,
) -> None:
    """Find the messages with an id that the sender gave, and show what each group did with them.

    Example: hourwheel message find orders order-7 --from 2026-01-01T00:00:00Z
    """
    with connect(ctx) as api, _lake_hint(subject, message_id) as traces:
        traces += _all(api, subject, message_id, since, until, group)
        _show(ctx, traces)


@contextmanager
def _lake_hint(subject: str, message: str) -> Iterator[list[MessageTrace]]:
    """Yields a list for traces. After the block, prints the command that reads the lake, if the server no longer knows
    the message or a part of its history."""
    traces: list[MessageTrace] = []
    command = f"hourwheel pipeline run trace --data DIRECTORY --subject {subject} --message {message}"
    try:
        yield traces
    except NotFound as error:
        if error.slug != "message-unknown" or error.problem.field == "subject":
            raise  # a delayed message of another subject is not in the lake either
        write_error(f"{error}: {command}")  # the server's sentence says that the lake may know the message
        raise typer.Exit(1) from error
    if any(group.state in _FORGOTTEN or not group.complete for trace in traces for group in trace.groups):
        write_error(f"the lake may know more: {command}")


@contextmanager
def _find_hint(subject: str, message: str) -> Iterator[None]:
    """Prints the command that finds an id of a sender, if the server asks for the time of the message."""
    try:
        yield
    except BadRequest as error:
        if error.problem.field != "from":
            raise
        if re.fullmatch(r"\d+:-\d+", message):
            write_error(f"{message} is no QUEUE:OFFSET: offsets are numbers from 0")
            raise typer.Exit(1) from error
        find = f"hourwheel message find {subject} {shlex.quote(message)} --from TIME"
        show_one = f"hourwheel message show {subject} QUEUE:OFFSET"
        write_error(f"a sender's id does not tell when the message came: {find}, or {show_one}")
        raise typer.Exit(1) from error


def _all(
    api: Api, subject: str, message_id: str, since: str | None, until: str | None, group: str | None
) -> Iterator[MessageTrace]:
    begin, end = moment(since, "--from"), moment(until, "--to")
    after: str | None = None
    while True:
        page = api.trace(subject, message_id, group=group, since=begin, until=end, after=after)
        yield from page.messages
        after = page.next
        if after is None:
            return


def _show(ctx: typer.Context, traces: list[MessageTrace]) -> None:
    if settings_of(ctx).json:
        for trace in traces:
            write_json(trace)
        return
    write_traces(traces)


def write_traces(traces: Sequence[MessageTrace]) -> None:
    for trace in traces:
        _write(trace)
    if not traces:
        write_line("none")


def _write(trace: MessageTrace) -> None:
    where = "" if trace.queue is None else f" at {trace.queue}:{trace.offset}"
    write_line(f"{trace.id or '(unreadable)'}{where}: {trace.state}")
    for name in ("scheduled_id", "accepted_at", "due_at", "dispatched_at", "damaged"):
        value = getattr(trace, name)
        if value is not None:
            write_line(f"  {name.replace('_', ' ')}  {text_of(value)}")
    for group in trace.groups:
        _write_group(group)
    if trace.more_groups:
        write_line("  there are more groups: name one with --group")


def _write_group(group: GroupTrace) -> None:
    consumer = "" if group.consumer is None else f", consumer {group.consumer}"
    gap = "" if group.complete else " (events may be missing)"
    write_line(f"  group {group.group}{consumer}: {group.state}{gap}")
    rows = [(e.at, e.event, e.attempt, e.consumer, e.due_at or e.lease_until, e.reason, e.detail) for e in group.events]
    if rows:
        write_table(["at", "event", "attempt", "consumer", "until", "reason", "detail"], rows)
