"""``hourwheel cell …``"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import typer

from hourwheel.cli.output import write_fields, write_json, write_line, write_table
from hourwheel.cli.settings import YesOption, confirm, connect, settings_of, write_list
from hourwheel.cli.subjects.queues import DryRunOption, write_step
from hourwheel.client import Api, CellContent, CellDescription, DrainResult, LostPart
from hourwheel.locks import Event
from hourwheel.wire.words import counted

app = typer.Typer(
    no_args_is_help=True, help="Add, show, drain and remove cells: storage for queues beside that of the home cell."
)


class CellKind(StrEnum):
    """The kinds of a cell. Queues move to ``real-time`` cells alone; ``delay`` has no effect, because delayed messages
    wait in the home cell."""

    REAL_TIME = "real-time"
    DELAY = "delay"


CellArgument = Annotated[str, typer.Argument(help="The name of the cell: lower-case letters, digits and dashes.")]


@app.command("list")
def list_(ctx: typer.Context) -> None:
    """List the home cell and the other cells.

    Example: hourwheel cell list
    """
    with connect(ctx) as api:
        cells = api.list_cells()
    head = ["cell", "kinds", "state", "queues", "closed parts", "reachable", "location"]
    write_list(ctx, cells, head, lambda c: (c.cell, c.kinds, c.state, c.queues, c.parts, c.reachable, c.location))


@app.command()
def show(ctx: typer.Context, cell: CellArgument) -> None:
    """Show a cell.

    Example: hourwheel cell show fast
    """
    with connect(ctx) as api:
        _show(ctx, api.get_cell(cell))


@app.command()
def add(
    ctx: typer.Context,
    cell: CellArgument,
    kind: Annotated[
        list[CellKind] | None,
        typer.Option(
            help="real-time: queues may move to the cell. delay: no effect, as delayed messages wait in the home cell."
            " Repeatable; both by default."
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Add a cell whose storage the servers were started with, or change its kinds.

    Example: hourwheel cell add fast --kind real-time
    """
    with connect(ctx) as api:
        changed = api.put_cell(
            cell, kinds=None if kind is None else [one_kind.value for one_kind in kind], dry_run=dry_run
        )
        _show(ctx, changed, dry_run=dry_run)


@app.command("set-state")
def set_state(
    ctx: typer.Context,
    cell: CellArgument,
    state: Annotated[Literal["normal", "read_only", "draining", "offline"], typer.Argument(help="The new state.")],
    dry_run: DryRunOption = False,
) -> None:
    """Set the state of a cell. Queues move only to a normal cell. An offline cell is not read either: no group gets
    its messages until it is normal again.

    Example: hourwheel cell set-state old read_only
    """
    with connect(ctx) as api:
        _show(ctx, api.put_cell(cell, state=state, dry_run=dry_run), dry_run=dry_run)


@app.command()
def drain(
    ctx: typer.Context,
    cell: CellArgument,
    dry_run: DryRunOption = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the cell holds nothing: until its last messages have expired.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two checks of --wait.")] = 10.0,
) -> None:
    """Move every queue of a cell to other cells, and show the remaining contents. Exit status 1 if queues could not be
    moved.

    Example: hourwheel cell drain old --dry-run
    """
    if dry_run and wait:
        raise typer.BadParameter("a dry run changes nothing to wait for: give one of the two", param_hint="--wait")
    with connect(ctx) as api:
        result = api.drain_cell(cell, dry_run=dry_run)
        _tell(ctx, result)
        if wait:
            result = _wait_for_empty(ctx, api, result, interval)
    if result.unmoved:
        raise typer.Exit(1)


def _wait_for_empty(ctx: typer.Context, api: Api, result: DrainResult, interval: float) -> DrainResult:
    """Looks at the cell until it is empty, and shows its contents after each look that found a change. Tries again to
    move queues that could not be moved. Returns the last result."""
    pause = Event()  # never set: only Ctrl-C ends this sooner
    while result.left:
        pause.wait(interval)
        before, result = result, api.drain_cell(result.cell, dry_run=not result.unmoved)
        if (result.left, result.unmoved) != (before.left, before.unmoved):
            _tell(ctx, result)
    return result


def _tell(ctx: typer.Context, result: DrainResult) -> None:
    if settings_of(ctx).json:
        write_json(result)
    else:
        _write_drain(result)


@app.command()
def remove(
    ctx: typer.Context,
    cell: CellArgument,
    lost: Annotated[
        bool, typer.Option("--lost", help="Give up an offline cell whose storage is gone, and what it holds.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Remove a drained, empty cell, or give up a lost one.

    Example: hourwheel cell remove old --yes
    """
    with connect(ctx) as api:
        if not (dry_run or yes):
            # Fails before the question, if the cell cannot be removed.
            foreseen = api.remove_cell(cell, lost=lost, dry_run=True)
            confirm(_lost_question(cell, foreseen.lost) if lost else f"Remove cell {cell}?", yes=yes)
        removed = api.remove_cell(cell, lost=lost, dry_run=dry_run)
    if settings_of(ctx).json:
        write_json(removed)
        return
    _show(ctx, msgspec.structs.replace(removed, lost=[]), dry_run=dry_run)
    if removed.lost:
        _write_lost(removed.lost)


def _lost_question(cell: str, lost: list[LostPart]) -> str:
    return (
        f"Give up cell {cell}, with {counted(len(lost), 'part')} of queues? The messages there are lost, and this"
        " cannot be undone. The server that answers cannot read the cell, but other servers may still reach it."
    )


def _write_lost(lost: list[LostPart]) -> None:
    write_line("lost, except what was consumed:")
    head = ["subject", "queue", "log", "from offset", "to offset", "goes on at", "in cell"]
    write_table(head, [(p.subject, p.queue, p.log, p.start, p.end, p.next_start, p.next_cell) for p in lost])


def _show(ctx: typer.Context, cell: CellDescription, *, dry_run: bool = False) -> None:
    if settings_of(ctx).json:
        write_json(cell)
        return
    if dry_run:
        write_line("the cell afterwards (nothing was changed):")
    write_fields(msgspec.structs.replace(cell, unreadable=[]), {"parts": "closed parts"})
    if cell.unreadable:
        write_line("no group gets the messages of these parts while the cell is offline:")
        _write_contents(cell.unreadable)
    if any(part.writable for part in cell.unreadable):
        write_line("producers get 503 for the queues of the parts that take messages, until these queues move")


def _write_drain(result: DrainResult) -> None:
    for step in result.moved:
        write_step(step)
    if result.unmoved:
        _write_unmoved(result)
    if not result.left:
        write_line(f"{result.cell} holds nothing")
        return
    _write_contents(result.left)


def _write_unmoved(result: DrainResult) -> None:
    head = ["subject", "queue", "pending", "reason"]
    write_line(f"could not be moved: {counted(len(result.unmoved), 'queue')}")
    write_table(head, [(queue.subject, queue.queue, queue.pending, queue.reason) for queue in result.unmoved])
    if not result.dry_run:
        write_line(
            f"{result.cell} stays {result.state}: no queue moves to it. Pending moves are carried out once the cell"
            " answers; repeat the drain for the others. To let queues move to the cell again:"
            f" hourwheel cell set-state {result.cell} normal"
        )


def _write_contents(contents: Sequence[CellContent]) -> None:
    head = ["subject", "queue", "log", "takes messages", "messages", "leases", "kept until"]
    kept = [c.kept_until and datetime.fromisoformat(c.kept_until) for c in contents]
    rows = [
        (c.subject, c.queue, c.log, c.writable, c.messages, c.leases, until)
        for c, until in zip(contents, kept, strict=True)
    ]
    write_table(head, rows)
