"""``hourwheel dead …``"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

import typer
from msgspec import UNSET

from hourwheel.cli.output import write_error, write_fields, write_json, write_line, write_table
from hourwheel.cli.pages import AfterOption, LimitOption, first, say_more
from hourwheel.cli.settings import (
    GroupArgument,
    SubjectArgument,
    YesOption,
    confirm,
    connect,
    moment,
    settings_of,
    write_list,
)
from hourwheel.client import Api, DeadLetter, DeadSelection, Orphan

app = typer.Typer(no_args_is_help=True, help="Look at dead letters, send them again, or drop them.")

IdArgument = Annotated[str, typer.Argument(metavar="DEAD_ID", help="The id that list prints.")]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="DEAD_ID", help="The dead letters with these ids.")]
AllOption = Annotated[bool, typer.Option("--all", help="All dead letters of the group.")]
FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Dead letters that died at this time or later, such as 2026-11-20T09:00:00Z."),
]
ToOption = Annotated[str | None, typer.Option("--to", help="Dead letters that died before this time.")]
ReasonOption = Annotated[Literal["attempts", "rejected"] | None, typer.Option(help="Dead letters with this reason.")]
DetailOption = Annotated[str | None, typer.Option(help="With --reason: only those with exactly this detail.")]


@app.command("list")
def list_(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    limit: LimitOption = 100,
    reason: ReasonOption = None,
    detail: DetailOption = None,
    newest: Annotated[bool, typer.Option("--newest", help="The newest first, instead of the oldest.")] = False,
    after: AfterOption = None,
) -> None:
    """List the dead letters of a group.

    Example: hourwheel dead list orders billing --limit 10
    """
    with connect(ctx) as api:
        listed = partial(api.list_dead, subject, group, reason=reason, detail=detail, newest=newest)
        letters, following = first(listed, limit, after)
    _list(ctx, letters, following, ["dead id", "died at", "reason", "detail", "attempt", "id", "body"])


@app.command()
def orphans(ctx: typer.Context, subject: SubjectArgument, limit: LimitOption = 100, after: AfterOption = None) -> None:
    """List the delayed messages whose subject was deleted before they were due.

    Example: hourwheel dead orphans orders
    """
    with connect(ctx) as api:
        letters, following = first(partial(api.list_orphans, subject), limit, after)
    _list(ctx, letters, following, ["dead id", "died at", "due at", "id", "body"])


@app.command()
def reasons(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument) -> None:
    """Count the dead letters of a group by reason, the most frequent first.

    Example: hourwheel dead reasons orders billing
    """
    with connect(ctx) as api:
        answer = api.dead_reasons(subject, group)
    if settings_of(ctx).json:
        write_json(answer)
        return
    rows = [(row.messages, row.reason, row.detail, row.first_at, row.last_at) for row in answer.reasons]
    write_table(["messages", "reason", "detail", "first", "last"], rows)
    if answer.others:
        write_line(f"{answer.others} have other reasons")
    if not answer.complete:
        write_line("only the oldest dead letters were counted")


@app.command()
def show(ctx: typer.Context, subject: SubjectArgument, group: GroupArgument, dead_id: IdArgument) -> None:
    """Show one dead letter.

    Example: hourwheel dead show orders billing 0-0
    """
    with connect(ctx) as api:
        letter = api.get_dead(subject, group, dead_id)
    (write_json if settings_of(ctx).json else write_fields)(letter)


@app.command()
def redrive(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    ids: IdsArgument = None,
    every: AllOption = False,
    since: FromOption = None,
    until: ToOption = None,
    reason: ReasonOption = None,
    detail: DetailOption = None,
) -> None:
    """Send dead letters again, to this group alone, as first attempts.

    Example: hourwheel dead redrive orders billing --all
    """
    _move(ctx, "redriven", Api.redrive, subject, group, _selection(ids, every, since, until, reason, detail))


@app.command()
def drop(
    ctx: typer.Context,
    subject: SubjectArgument,
    group: GroupArgument,
    ids: IdsArgument = None,
    every: AllOption = False,
    since: FromOption = None,
    until: ToOption = None,
    reason: ReasonOption = None,
    detail: DetailOption = None,
    yes: YesOption = False,
) -> None:
    """Delete dead letters.

    Example: hourwheel dead drop orders billing --to 2026-11-01T00:00:00Z --yes
    """
    which = _selection(ids, every, since, until, reason, detail)  # checked before the question
    confirm(f"Delete these dead letters of {group} for good?", yes=yes)
    _move(ctx, "dropped", Api.drop, subject, group, which)


def _selection(
    ids: list[str] | None,
    every: bool,
    since: str | None,
    until: str | None,
    reason: Literal["attempts", "rejected"] | None,
    detail: str | None,
) -> DeadSelection:
    if detail is not None and reason is None:
        raise typer.BadParameter("--detail needs --reason: give the reason to which the detail belongs")
    selections = {
        "dead ids": DeadSelection.named(ids) if ids else None,
        "--all": DeadSelection.everything() if every else None,
        "--reason": None if reason is None else DeadSelection.because(reason, detail),
        "--from and --to": _between(since, until),
    }
    chosen = {way: selection for way, selection in selections.items() if selection is not None}
    if not chosen:
        raise typer.BadParameter("say which: dead ids, --all, --reason, or --from and --to")
    if len(chosen) > 1:
        raise typer.BadParameter(f"give one of these, not {len(chosen)}: {', '.join(chosen)}")
    (selection,) = chosen.values()
    return selection


def _between(since: str | None, until: str | None) -> DeadSelection | None:
    if since is None and until is None:
        return None
    return DeadSelection.between(moment(since, "--from"), moment(until, "--to"))


def _list(
    ctx: typer.Context, letters: Sequence[DeadLetter | Orphan], following: str | None, columns: list[str]
) -> None:
    names = [column.replace(" ", "_") for column in columns]
    write_list(ctx, letters, columns, lambda letter: [getattr(letter, name) for name in names])
    say_more(following)


def _move(
    ctx: typer.Context,
    verb: str,
    call: Callable[[Api, str, str, DeadSelection], int],
    subject: str,
    group: str,
    which: DeadSelection,
) -> None:
    with connect(ctx) as api:
        count = call(api, subject, group, which)
    if settings_of(ctx).json:
        write_json({verb: count})
    else:
        write_line(f"{verb} {count}" if count or which.ids is not UNSET else _none(verb, subject, group, which))
    named = set(which.ids) if which.ids is not UNSET else set()
    # The server passes over ids that do not exist; a script should learn of them.
    if count < len(named):
        write_error(_missing(sorted(named), count, verb))
        raise typer.Exit(1)


def _none(verb: str, subject: str, group: str, which: DeadSelection) -> str:
    if which.all is True:
        return f"{verb} 0: {group} has no dead letters"
    listed = f"; hourwheel dead reasons {subject} {group} lists reasons and details"
    return f"{verb} 0: no dead letter of {group} matches{'' if which.reason is UNSET else listed}"


def _missing(named: list[str], count: int, verb: str) -> str:
    if len(named) == 1:
        return f"there is no dead letter {named[0]!r}"
    missing = len(named) - count
    return f"{missing} of the {len(named)} dead letters {'does' if missing == 1 else 'do'} not exist; {verb} {count}"
