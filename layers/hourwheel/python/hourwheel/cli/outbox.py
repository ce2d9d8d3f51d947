"""``hourwheel outbox …``"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from hourwheel.cli.output import write_error, write_fields, write_json, write_line, write_table
from hourwheel.cli.pages import LimitOption, say_more
from hourwheel.cli.settings import YesOption, confirm, settings_of, to_server, write_answer, write_list


class _Counts(msgspec.Struct):
    waiting: int
    oldest: datetime | None
    refused: int
    kept: int


app = typer.Typer(
    no_args_is_help=True, help="Run a relay of an outbox, look at the outbox, and decide about refused rows."
)

_EPOCH = datetime.fromtimestamp(0, UTC)

DatabaseOption = Annotated[
    str,
    typer.Option(
        envvar="HOURWHEEL_DATABASE",
        help="The database of the outbox: sqlite:///FILE, postgresql://… or mysql://… . Other users can see the command"
        " line, but not the variable.",
    ),
]
RowsArgument = Annotated[list[int] | None, typer.Argument(metavar="ROW", help="The refused rows with these ids.")]
AllOption = Annotated[bool, typer.Option("--all", help="All refused rows.")]


@app.command()
def relay(
    ctx: typer.Context,
    database: DatabaseOption,
    name: Annotated[
        str | None, typer.Option(help="A name to show to people (default: the host and the process).")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads, each with one connection to the database.")] = 2,
    batch_rows: Annotated[int, typer.Option(min=1, max=1_000, help="At most this many rows in a request.")] = 500,
    lease_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which others take over from a killed relay.")
    ] = 15.0,
    keep_days: Annotated[float, typer.Option(min=0, help="Keep rows that were sent for this long.")] = 0.0,
    once: Annotated[bool, typer.Option("--once", help="Send the rows that wait now, and end.")] = False,
) -> None:
    """Send the rows of an outbox to the server, until it is stopped. Any number of relays may run.

    Example: hourwheel outbox relay --database sqlite:///shop.db --once
    """
    from hourwheel.outbox import Relay

    runner: Relay = to_server(
        lambda url, **how: Relay(database, url=url, **how),
        settings_of(ctx),
        name=name,
        workers=workers,
        batch_rows=batch_rows,
        lease_seconds=lease_seconds,
        keep_days=keep_days,
    )
    if not once:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
        runner.run()
        return
    try:
        count = runner.run_once()
    finally:
        runner.stop()
    write_answer(ctx, {"sent": count}, f"sent {count}")


@app.command()
def create(database: DatabaseOption) -> None:
    """Create the tables of the outbox in a database, if they are missing.

    Example: hourwheel outbox create --database sqlite:///shop.db
    """
    from hourwheel import outbox

    with _session(database) as session:
        outbox.create_table(session)
    _database(database).check()
    write_line("the database has an outbox")


@app.command()
def status(ctx: typer.Context, database: DatabaseOption) -> None:
    """Count the rows of an outbox, and show the relays that are sending.

    Example: hourwheel outbox status --database sqlite:///shop.db
    """
    from hourwheel import outbox

    with _session(database) as session:
        now = outbox.status(session)
    if settings_of(ctx).json:
        write_json(now)
        return
    oldest = None if now.oldest_ms is None else _time(now.oldest_ms)
    write_fields(_Counts(now.waiting, oldest, now.refused, now.kept))
    if now.shards:
        rows = [
            [shard.shard, shard.relay, shard.rows, shard.lease_until_ms and _time(shard.lease_until_ms)]
            for shard in now.shards
        ]
        write_table(["shard", "relay", "rows under way", "lease until"], rows)


@app.command("list")
def list_(
    ctx: typer.Context,
    database: DatabaseOption,
    limit: LimitOption = 100,
    after: Annotated[
        int | None, typer.Option(metavar="ROW", help="Continue after the row that the previous list ended with.")
    ] = None,
) -> None:
    """List the rows that the server refused, and the reasons.

    Example: hourwheel outbox list --database sqlite:///shop.db
    """
    from hourwheel import outbox

    with _session(database) as session:
        rows = outbox.refused(session, limit=limit + 1, after=after)  # one more tells whether the list ends here
    more, rows = len(rows) > limit, rows[:limit]
    columns = ["row", "refused at", "subject", "key", "reason", "body"]
    write_list(
        ctx,
        rows,
        columns,
        lambda row: (row.id, _time(row.refused_ms), row.subject, row.key or "", row.reason, row.body),
    )
    say_more(str(rows[-1].id) if more else None)


@app.command()
def retry(ctx: typer.Context, database: DatabaseOption, rows: RowsArgument = None, every: AllOption = False) -> None:
    """Send refused rows again.

    Example: hourwheel outbox retry --database sqlite:///shop.db --all
    """
    from hourwheel import outbox

    chosen = _chosen(rows, every)
    with _session(database) as session:
        count = outbox.retry(session, chosen)
    _report(ctx, "retried", count, chosen)


@app.command()
def drop(
    ctx: typer.Context,
    database: DatabaseOption,
    rows: RowsArgument = None,
    every: AllOption = False,
    yes: YesOption = False,
) -> None:
    """Delete refused rows.

    Example: hourwheel outbox drop --database sqlite:///shop.db --all --yes
    """
    from hourwheel import outbox

    chosen = _chosen(rows, every)
    confirm("Delete these rows of the outbox for good?", yes=yes)
    with _session(database) as session:
        count = outbox.drop(session, chosen)
    _report(ctx, "dropped", count, chosen)


def _database(database: str) -> Any:
    from hourwheel.apps.outbox.databases import database_of

    return database_of(database)


@contextmanager
def _session(database: str) -> Iterator[Any]:
    """Yields a connection to the database, which commits each statement, and closes it at the end of the block."""
    connection = _database(database).open()
    try:
        yield connection.raw
    finally:
        connection.close()


def _chosen(rows: list[int] | None, every: bool) -> list[int] | None:
    if bool(rows) == every:
        raise typer.BadParameter("say which: rows, or --all")
    return rows or None


def _report(ctx: typer.Context, verb: str, count: int, chosen: list[int] | None) -> None:
    write_answer(ctx, {verb: count}, f"{verb} {count}")
    lacking = len(set(chosen or ())) - count
    if chosen and lacking:
        write_error(f"{lacking} of the rows {'is' if lacking == 1 else 'are'} not refused, or not there: see list")
        raise typer.Exit(1)


def _time(moment_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=moment_ms)
