"""``hourwheel queue …``"""

from typing import Annotated

import typer

from hourwheel.cli.output import write_json, write_line, write_table
from hourwheel.cli.settings import SubjectArgument, connect, settings_of
from hourwheel.client import RouteStep, SubjectRoute
from hourwheel.model.fields import MAX_QUEUES

app = typer.Typer(no_args_is_help=True, help="Show, move, spread and add the queues of a subject.")

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the result, and change nothing.")]
_HEAD = ["queue", "start", "end", "cell", "log", "generation", "state"]


@app.command("list")
def list_(ctx: typer.Context, subject: SubjectArgument) -> None:
    """Show where the queues of a subject are.

    Example: hourwheel queue list orders
    """
    with connect(ctx) as api:
        route = api.get_route(subject)
    if settings_of(ctx).json:
        write_json(route)
    else:
        _write_route("now", route)


@app.command()
def move(
    ctx: typer.Context,
    subject: SubjectArgument,
    queue: Annotated[int, typer.Argument(min=0, max=MAX_QUEUES - 1, help="The number of the queue, from 0.")],
    to: Annotated[str, typer.Option(help="The cell: home or the name of another one.")],
    dry_run: DryRunOption = False,
) -> None:
    """Move a queue to another cell. Its stored messages stay readable where they are.

    Example: hourwheel queue move orders 0 --to fast --dry-run
    """
    with connect(ctx) as api:
        _show(ctx, api.move_queue(subject, queue, to, dry_run=dry_run))


@app.command()
def spread(
    ctx: typer.Context,
    subject: SubjectArgument,
    over: Annotated[
        list[str] | None, typer.Option(help="A cell to use; repeatable (default: all that take queues).")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Spread the queues of a subject evenly over cells.

    Example: hourwheel queue spread orders --over home --over fast
    """
    with connect(ctx) as api:
        _show(ctx, api.spread_queues(subject, over, dry_run=dry_run))


@app.command()
def add(
    ctx: typer.Context,
    subject: SubjectArgument,
    queues: Annotated[
        int,
        typer.Argument(min=1, max=MAX_QUEUES, help="The number of queues that the subject has afterwards: 1 to 64."),
    ],
    dry_run: DryRunOption = False,
) -> None:
    """Give a subject more queues. Each queue that it has goes on in a new part.

    Example: hourwheel queue add orders 4
    """
    with connect(ctx) as api:
        _show(ctx, api.add_queues(subject, queues, dry_run=dry_run))


def _show(ctx: typer.Context, step: RouteStep) -> None:
    if settings_of(ctx).json:
        write_json(step)
    else:
        write_step(step)


def write_step(step: RouteStep) -> None:
    """Writes the route before and after a change."""
    _write_route("before", step.before)
    _write_route("after (nothing was changed)" if step.dry_run else "after", step.after)


def _write_route(when: str, route: SubjectRoute) -> None:
    write_line(f"{route.subject}, epoch {route.epoch}, {when}:")
    rows = [
        (each.queue, m.start, m.end, m.cell, m.log, m.generation, m.state)
        for each in route.queues
        for m in each.mappings
        # A queue that was empty when queues were added has left an empty part behind, which tells nobody anything.
        if m.state != "expired" or m.start != m.end
    ]
    write_table(_HEAD, rows)
