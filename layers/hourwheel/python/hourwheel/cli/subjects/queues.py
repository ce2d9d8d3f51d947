"""``hourwheel queue …``"""

from typing import Annotated

import typer

from hourwheel.cli.output import write_json, write_line, write_table
from hourwheel.cli.settings import SubjectArgument, connect, settings_of
from hourwheel.client import RouteMapping, RouteStep, SubjectRoute
from hourwheel.model.fields import MAX_QUEUES
from hourwheel.wire.words import counted

app = typer.Typer(
    no_args_is_help=True, help="Show, move, spread and add the queues of a subject, and withdraw pending moves."
)

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
        step = api.spread_queues(subject, over, dry_run=dry_run)
    _show(ctx, step, nothing=f"the queues of {subject} are spread evenly already")


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
        step = api.add_queues(subject, queues, dry_run=dry_run)
    _show(ctx, step, nothing=f"{subject} has {counted(queues, 'queue')} already")


@app.command()
def withdraw(
    ctx: typer.Context,
    subject: SubjectArgument,
    queue: Annotated[
        int | None, typer.Argument(min=0, max=MAX_QUEUES - 1, help="The number of the queue (default: all queues).")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Withdraw a pending move, or all pending changes of the route of a subject: its queues stay where they are.

    Example: hourwheel queue withdraw orders 0
    """
    with connect(ctx) as api:
        step = api.withdraw_route_changes(subject, queue, dry_run=dry_run)
    where = subject if queue is None else f"queue {queue} of {subject}"
    _show(ctx, step, nothing=f"no move or addition of queues is pending for {where}")


def _show(ctx: typer.Context, step: RouteStep, *, nothing: str = "the route is as it should be") -> None:
    """Writes the result of a change; ``nothing`` is the reason if there was nothing to change."""
    if settings_of(ctx).json:
        write_json(step)
    elif step.before == step.after:
        write_line(f"nothing to do: {nothing}")
    else:
        write_step(step)


def write_step(step: RouteStep) -> None:
    """Writes the route before and after a change."""
    _write_route("before", step.before)
    _write_route("after (nothing was changed)" if step.dry_run else "after", step.after)


def _write_route(when: str, route: SubjectRoute) -> None:
    write_line(f"{route.subject}, epoch {route.epoch}, {when}:")
    # Most routes have no pending move, and need no column for it.
    moving = any(queue.moving_to is not None for queue in route.queues)
    rows = [
        (queue.queue, m.start, _end(m), m.cell, m.log, m.generation, m.state)
        + ((queue.moving_to if m is queue.mappings[-1] else None,) if moving else ())
        for queue in route.queues
        for m in queue.mappings
        # A queue that was empty when queues were added has left an empty part behind, which tells nobody anything.
        if m.state != "expired" or m.start != m.end
    ]
    write_table([*_HEAD, "moving to"] if moving else _HEAD, rows)
    if route.pending_queues is not None:
        write_line(f"pending: the subject gets {counted(route.pending_queues, 'queue')} once all its cells answer")


def _end(mapping: RouteMapping) -> int | str | None:
    return "unknown" if mapping.end is None and mapping.state == "lost" else mapping.end
