"""``hourwheel group …``"""

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from hourwheel.api.control.bodies import PushBody, RetryBody
from hourwheel.cli.groups.filters import NoFilterOption, TagsAllOption, TagsAnyOption, TagsNoneOption, filter_of
from hourwheel.cli.groups.group_options import RetryDelaysOption, retry_of
from hourwheel.cli.groups.push import PushOption, push_of
from hourwheel.cli.output import text_of, write_error, write_json, write_line, write_table
from hourwheel.cli.setting_options import pop_options, takes_fields, takes_settings
from hourwheel.cli.settings import (
    GroupArgument,
    SubjectArgument,
    YesOption,
    confirm,
    connect,
    moment,
    settings_of,
    write_answer,
    write_deletion,
    write_list,
    write_record,
)
from hourwheel.client import Api, QueueOffset
from hourwheel.client.records.groups import Group
from hourwheel.model.fields import MAX_QUEUES
from hourwheel.model.group_settings import AllGroupSettings
from hourwheel.model.settings import described
from hourwheel.wire.words import counted

app = typer.Typer(
    no_args_is_help=True, help="Create, show, change, pause, seek and delete groups, and show their consumers."
)

_RETRY, _PUSH = described(RetryBody), described(PushBody)

# The command says itself which leases stay; without a handler Python would write the client's warning to stderr, too.
logging.getLogger("hourwheel.client.consumers").addHandler(logging.NullHandler())


@app.command()
@takes_settings(AllGroupSettings)
@takes_fields(_RETRY, "retry_")
@takes_fields(_PUSH, "push_")
def create(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    retry_delays: RetryDelaysOption = None,
    push: PushOption = None,
    tags_any: TagsAnyOption = None,
    tags_all: TagsAllOption = None,
    tags_none: TagsNoneOption = None,
    no_filter: NoFilterOption = False,
    **settings: Any,
) -> None:
    """Create a group, or change one. The tag options replace the former filter as a whole.

    Example: hourwheel group create orders billing --max-attempts 5 --retry-delays 1,10,60
    """
    retry = retry_of(retry_delays, **pop_options(_RETRY, "retry_", settings))
    target = push_of(push, **pop_options(_PUSH, "push_", settings))
    tag_filter = filter_of(tags_any, tags_all, tags_none, remove=no_filter)
    settings |= {"retry": retry, "push": target, "filter": tag_filter}
    with connect(ctx) as api:
        record = api.put_group(subject, group, **settings)
    named = [f"{name} {text_of(getattr(record, name))}" for name, value in settings.items() if value is not None]
    write_answer(ctx, record, f"stored {group} of {subject}{': ' * bool(named)}{', '.join(named)}")


@app.command()
def show(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """Show a group.

    Example: hourwheel group show orders billing
    """
    with connect(ctx) as api:
        write_record(ctx, api.get_group(subject, group))


@app.command()
def decide(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    then: Annotated[
        Literal["retry", "dead"], typer.Argument(help="Try the first message of the key again, or give it up.")
    ],
    keys: Annotated[list[str] | None, typer.Option("--key", help="A stopped key. Repeatable.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Decide about all stopped keys.")] = False,
) -> None:
    """Decide about stopped keys of an ordered group: try the first message again, or give it up.

    Example: hourwheel group decide orders ledger retry --all
    """
    if keys and every:
        raise typer.BadParameter("--all decides about every stopped key, and --key about one: give only one of the two")
    if not keys and not every:
        raise typer.BadParameter("say which keys: --key KEY, once or more, or --all")
    with connect(ctx) as api:
        decided = api.decide_held(subject, group, then, keys=keys or None)
    write_answer(ctx, {"decided": decided}, f"decided {counted(decided, 'key')}")


@app.command("push")
def push_(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """Show the state of deliveries to the target of a group, and the secret with which its receiver checks them.

    Example: hourwheel group push invoices mail
    """
    with connect(ctx) as api:
        write_record(ctx, api.push(subject, group))


@app.command("list")
def list_(ctx: typer.Context, subject: SubjectArgument) -> None:
    """List the groups of a subject.

    Example: hourwheel group list orders
    """
    with connect(ctx) as api:
        groups = list(_all(api, subject))
    columns = ["group", "start", "max attempts", "push", "paused"]
    write_list(
        ctx,
        groups,
        columns,
        lambda group: (group.group, group.start, group.max_attempts, group.push and group.push.kind, group.paused),
    )


@app.command()
def pause(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """Pause a group: its consumers get no messages, and pushes stop. Leased messages can be settled.

    Example: hourwheel group pause orders billing
    """
    with connect(ctx) as api:
        write_answer(ctx, api.pause_group(subject, group), f"paused {group} of {subject}")


@app.command()
def resume(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """Resume a group that is paused.

    Example: hourwheel group resume orders billing
    """
    with connect(ctx) as api:
        write_answer(ctx, api.resume_group(subject, group), f"resumed {group} of {subject}")


@app.command()
def delete(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument, yes: YesOption = False) -> None:
    """Delete a group with its dead letters. The messages of the subject stay.

    Example: hourwheel group delete orders billing --yes
    """
    confirm(f"Delete the group {group} of {subject} with its dead letters?", yes=yes)
    with connect(ctx) as api:
        left = api.delete_group(subject, group)
    write_deletion(ctx, f"{group} of {subject}", left)


@app.command()
def consumers(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """List the consumers that pulled lately or hold leases.

    Example: hourwheel group consumers orders billing
    """
    with connect(ctx) as api:
        states = api.list_consumers(subject, group)
    _report_cells_out(states.cells_out, "consumers and leases there are not listed")
    columns = ["consumer", "since", "pulled at", "in flight", "leases", "first lease until"]
    write_list(
        ctx,
        states,
        columns,
        lambda listed: (
            listed.consumer,
            listed.since,
            listed.pulled_at,
            listed.in_flight,
            listed.leases,
            listed.lease_until,
        ),
    )


@app.command()
def leases(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """List the leases that end first, up to 100.

    Example: hourwheel group leases orders billing
    """
    with connect(ctx) as api:
        answer = api.list_leases(subject, group)
    if settings_of(ctx).json:
        write_json(answer)
        return
    rows = [(lease.consumer, lease.queue, lease.offset, lease.messages, lease.lease_until) for lease in answer.leases]
    write_table(["consumer", "queue", "offset", "messages", "lease until"], rows)
    if not answer.complete:
        write_line("there are more leases, which end later")


@app.command()
def retries(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """Count the retries by attempt.

    Example: hourwheel group retries orders billing
    """
    with connect(ctx) as api:
        counts = api.count_retries(subject, group)
    if settings_of(ctx).json:
        write_json(counts)
        return
    rows = [(retries.attempt, retries.retrying, retries.backing_off) for retries in counts.attempts]
    write_table(["attempt", "retrying", "backing off"], rows)
    if not counts.complete:
        write_line("there are more retries: the server stopped counting at its limit")


@app.command()
def leave(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    consumer: Annotated[str, typer.Argument(help="The name of the consumer.")],
) -> None:
    """End the leases of a consumer that died: others get its messages at once. A consumer that is not known is no
    error.

    Example: hourwheel group leave orders billing host-1
    """
    with connect(ctx) as api:
        # Before the call, which has the server forget the consumer.
        states = api.list_consumers(subject, group)
        released = api.leave(subject, group, consumer)
    _report_cells_out(released.cells_out, f"what {consumer} holds there stays leased until its leases end")
    exists = released or any(listed.consumer == consumer for listed in states)
    if not exists and not released.cells_out and not states.cells_out:
        write_error(
            f"{group} of {subject} knows no consumer {consumer!r} that pulled lately or holds leases:"
            f" hourwheel group consumers {subject} {group} lists them"
        )
    answer = {"released": int(released), "cells_out": released.cells_out}
    write_answer(ctx, answer, f"released {counted(released, 'message')} of {consumer}")


@app.command()
def seek(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    to: Annotated[
        Literal["start", "end"] | None, typer.Option(help="To the first message that is kept, or behind the last one.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="To the first message sent at this time or later, such as 2026-11-20T09:00:00Z.")
    ] = None,
    queue: Annotated[
        int | None, typer.Option(min=0, max=MAX_QUEUES - 1, help="With --offset: in this queue only.")
    ] = None,
    offset: Annotated[int | None, typer.Option(min=0, help="With --queue: to this offset.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Move nothing, and count the messages.")] = False,
) -> None:
    """Move the group to another message. Leased messages, retries and dead letters stay as they are.

    Example: hourwheel group seek orders billing --time 2026-11-20T09:00:00Z
    """
    target = _target(to, moment(time, "--time"), queue, offset)
    with connect(ctx) as api:
        positions = api.seek(subject, group, target, dry_run=dry_run)
    if settings_of(ctx).json:
        write_json(positions)
    elif dry_run:
        rows = [(moved.queue, moved.offset, moved.served_again, moved.passed_over) for moved in positions]
        write_table(["queue", "offset", "served again", "passed over"], rows)
    else:
        write_table(["queue", "offset"], [(position.queue, position.offset) for position in positions])


def _report_cells_out(cells: Sequence[str], what: str) -> None:
    """Says on stderr which cells an answer knows nothing of, and what this means."""
    if cells:
        noun = "cell" if len(cells) == 1 else "cells"
        listed = "hourwheel cell list shows the state of each cell"
        write_error(f"{noun} {', '.join(cells)}, offline or out of reach: {what}; {listed}")


def _all(api: Api, subject: str) -> Iterator[Group]:
    after: str | None = None
    while True:
        page = api.list_groups(subject, after=after)
        yield from page.groups
        after = page.next
        if after is None:
            return


def _target(
    to: Literal["start", "end"] | None, time: datetime | None, queue: int | None, offset: int | None
) -> Literal["start", "end"] | datetime | QueueOffset:
    if (queue is None) != (offset is None):
        raise typer.BadParameter("--queue and --offset go together: give both")
    position = None if queue is None or offset is None else QueueOffset(queue, offset)
    targets = [target for target in (to, time, position) if target is not None]
    if len(targets) != 1:
        raise typer.BadParameter("give one of --to, --time, and --queue with --offset")
    return targets[0]
