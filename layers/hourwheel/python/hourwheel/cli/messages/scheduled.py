"""``hourwheel scheduled …``"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

import typer

from hourwheel.cli.output import text_of, write_error, write_json, write_line, write_table
from hourwheel.cli.pages import AfterOption, LimitOption, first, say_more
from hourwheel.cli.settings import (
    DelayOption,
    DeliverAtOption,
    SubjectArgument,
    YesOption,
    confirm,
    connect,
    moment,
    seconds,
    settings_of,
    write_answer,
    write_list,
    write_record,
)
from hourwheel.client import ChosenPage, DelayedSelection, PendingCounts, ScheduledMessage
from hourwheel.client.due import due_at
from hourwheel.system import SystemClock
from hourwheel.wire.words import counted

app = typer.Typer(no_args_is_help=True, help="Show, list, count, move or cancel delayed messages.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The scheduled id that produce printed.")]
OneIdArgument = Annotated[
    str | None, typer.Argument(metavar="ID", help="The scheduled id that produce printed; or give --subject.")
]
OfSubjectOption = Annotated[
    str | None, typer.Option("--subject", help="All of this subject that the other options choose.")
]
KeyOption = Annotated[str | None, typer.Option("--key", help="Of this key.")]
TagOption = Annotated[str | None, typer.Option("--tag", help="With this tag.")]
SentIdOption = Annotated[str | None, typer.Option("--id", help="With this id, which the sender gave.")]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--from", help="Due at this time or later, such as 2026-11-20T09:00:00Z; by default the current hour."
    ),
]
UntilOption = Annotated[str | None, typer.Option("--to", help="Due before this time.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Count the messages, and change nothing.")]


@app.command()
def show(ctx: typer.Context, scheduled_id: IdArgument) -> None:
    """Show a delayed message.

    Example: hourwheel scheduled show SCHEDULED_ID
    """
    with connect(ctx) as api:
        message = api.get_scheduled(scheduled_id)
    write_record(ctx, message)


@app.command()
def cancel(
    ctx: typer.Context,
    scheduled_id: OneIdArgument = None,
    subject: OfSubjectOption = None,
    message_id: SentIdOption = None,
    key: KeyOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Cancel a delayed message, or all of a subject that options choose. Exit status 1 if the one was sent already.

    Example: hourwheel scheduled cancel --subject orders --id order-7
    """
    which = _choice(scheduled_id, subject, message_id, key, tag, since, until)
    with connect(ctx) as api:
        if which is not None:
            _change_chosen(ctx, partial(api.cancel_chosen, subject or "", which), "cancel", dry_run=dry_run, yes=yes)
            return
        message = api.cancel(scheduled_id or "")
    _print_outcome(ctx, message, f"cancelled {message.id}", state="cancelled")


@app.command()
def move(
    ctx: typer.Context,
    scheduled_id: OneIdArgument = None,
    delay: DelayOption = None,
    deliver_at: DeliverAtOption = None,
    subject: OfSubjectOption = None,
    message_id: SentIdOption = None,
    key: KeyOption = None,
    tag: TagOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Move a delayed message to another time, and print its new id; or all of a subject that options choose. Exit
    status 1 if the one was sent or cancelled.

    Example: hourwheel scheduled move --subject orders --key customer-42 --delay 3h --dry-run
    """
    which = _choice(scheduled_id, subject, message_id, key, tag, since, until)
    with connect(ctx) as api:
        try:
            if which is not None:
                # One time for all calls: a call finds no message again that another one has moved.
                at = due_at(seconds(delay), deliver_at, SystemClock().now_ms())
                move_to = partial(api.move_chosen, subject or "", which, deliver_at=at)
                _change_chosen(ctx, move_to, "move", dry_run=dry_run, yes=yes)
                return
            message = api.reschedule(scheduled_id or "", delay=seconds(delay), deliver_at=deliver_at)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    done = f"{message.id}  scheduled {text_of(message.deliver_at)}  {message.scheduled_id}"
    _print_outcome(ctx, message, done, state="moved")


@app.command()
def count(
    ctx: typer.Context,
    subject: SubjectArgument,
    hours: Annotated[
        int | None,
        typer.Option(
            min=1, max=744, help="Count this many hours ahead; by default 72, and the total of all times beside them."
        ),
    ] = None,
) -> None:
    """Count the delayed messages of a subject by the hour in which they are due, and tell when the next one is.

    Example: hourwheel scheduled count orders --hours 24
    """
    with connect(ctx) as api:
        counts = api.pending(subject, hours=hours)
    if settings_of(ctx).json:
        write_json(counts)
        return
    if counts.hours:
        write_table(["hour", "messages"], [(hour.hour, hour.messages) for hour in counts.hours])
    write_line(_counted(counts, hours))


@app.command("list")
def list_(
    ctx: typer.Context,
    subject: Annotated[str | None, typer.Argument(help="The subject; all if it is left out.")] = None,
    since: SinceOption = None,
    until: UntilOption = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Print the beginnings of their bodies.")] = False,
    key: KeyOption = None,
    tag: TagOption = None,
    message_id: SentIdOption = None,
    limit: LimitOption = 50,
    after: AfterOption = None,
) -> None:
    """List delayed messages one by one, the next due first. Prints the ids that show, move and cancel take.

    Example: hourwheel scheduled list orders --key customer-42 --limit 10
    """
    begin, end = moment(since, "--from"), moment(until, "--to")
    with connect(ctx) as api:
        call = api.list_delayed if subject is None else partial(api.list_subject_delayed, subject)
        call = partial(call, since=begin, until=end, bodies=bodies, key=key, tag=tag, message_id=message_id)
        listed, following = first(call, limit, after)
    columns = ["deliver at", "subject", "state", "key", "id", *(["body"] if bodies else []), "scheduled id"]
    names = [column.replace(" ", "_") for column in columns]
    write_list(ctx, listed, columns, lambda message: [getattr(message, name) for name in names])
    for message in listed:
        if message.damaged is not None:
            write_error(f"{message.scheduled_id} cannot be read: {message.damaged}")
    say_more(following)


def _counted(counts: PendingCounts, hours: int | None) -> str:
    if hours is not None:
        return f"{counts.messages} due within {hours} h; --hours looks further, up to 744"  # 31 days, as in the API
    total = counts.total if counts.complete else f"{counts.total} or more"
    following = "" if counts.next_at is None else f", the next at {text_of(counts.next_at)}"
    incomplete = "" if counts.complete else "; the server has not counted all yet: run the command again"
    return f"{counts.messages} due within 72 h, {total} in all{following}{incomplete}"


def _choice(
    scheduled_id: str | None,
    subject: str | None,
    message_id: str | None,
    key: str | None,
    tag: str | None,
    since: str | None,
    until: str | None,
) -> DelayedSelection | None:
    """Returns what selects messages of the subject; None where a scheduled id names one. Raises ``BadParameter`` for
    both or none of the two."""
    chooses = any(option is not None for option in (message_id, key, tag, since, until))
    if (scheduled_id is None) is (subject is None) or (chooses and subject is None):
        raise typer.BadParameter("give the scheduled ID of one message, or --subject with options that choose some")
    if subject is not None and not chooses:
        raise typer.BadParameter("say which messages of the subject: --id, --key, --tag, --from or --to")
    if subject is None:
        return None
    begin, end = moment(since, "--from"), moment(until, "--to")
    return DelayedSelection.where(key=key, tag=tag, message_id=message_id, since=begin, until=end)


def _change_chosen(ctx: typer.Context, call: Callable[..., ChosenPage], act: str, *, dry_run: bool, yes: bool) -> None:
    """Counts the messages, asks, and changes them. One named by its id is changed without a question."""
    looked = sum(len(page.messages) for page in _pages(partial(call, dry_run=True)))
    if dry_run:
        write_answer(ctx, {"messages": looked}, f"would {act} {_messages(looked)}")
        return
    confirm(f"{act.capitalize()} {_messages(looked)}?", yes=yes or looked <= 1)
    state = {"cancel": "cancelled", "move": "moved"}[act]
    messages = [message for page in _pages(call) for message in page.messages]
    changed = [message for message in messages if message.state == state]
    write_answer(ctx, {state: len(changed), "messages": messages}, f"{state} {_messages(len(changed))}")
    for message in messages:
        if message.state != state:
            write_error(_too_late(message))


def _messages(number: int) -> str:
    return counted(number, "delayed message")


def _pages(call: Callable[..., ChosenPage]) -> Iterator[ChosenPage]:
    page = call()
    yield page
    while page.next is not None:
        page = call(after=page.next)
        yield page


def _print_outcome(ctx: typer.Context, message: ScheduledMessage, done: str, *, state: str) -> None:
    if settings_of(ctx).json:
        write_json(message)
    elif message.state == state:
        write_line(done)
    if message.state != state:
        write_error(_too_late(message))
        raise typer.Exit(1)


def _too_late(message: ScheduledMessage) -> str:
    if message.state != "dispatched":
        return f"too late: {message.id} is {message.state}"
    when = "" if message.dispatched_at is None else f" at {text_of(message.dispatched_at)}"
    where = "" if message.queue is None else f", to queue {message.queue}, offset {message.offset}"
    return f"too late: {message.id} was sent{when}{where}"
