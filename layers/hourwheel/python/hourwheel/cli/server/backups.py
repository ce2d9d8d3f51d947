"""``hourwheel backup``, ``hourwheel restore`` and ``hourwheel check``"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hourwheel.cli.output import write_json, write_line
from hourwheel.cli.server.serve_options import CellOption, directories_of
from hourwheel.cli.settings import settings_of

if TYPE_CHECKING:
    from hourwheel.embedded.backups.copies import Backup


def backup(
    ctx: typer.Context,
    target: Annotated[Path, typer.Argument(help="A new directory for the backup.")],
    data: Annotated[Path, typer.Option(help="The data directory.")],
    cell: CellOption = None,
) -> None:
    """Copy a data directory, while servers use it, as it is at one moment.

    Example: hourwheel backup /mnt/backups/monday --data ./queue
    """
    from hourwheel.embedded.backups.backup import back_up
    from hourwheel.system import SystemClock

    made = back_up(target, data, directories_of(cell or []), SystemClock().now_ms())
    _tell(ctx, made, f"copied {data} to {target}")


def restore(
    ctx: typer.Context,
    source: Annotated[Path, typer.Argument(help="The directory of the backup.")],
    data: Annotated[Path, typer.Option(help="The data directory to make, which must not exist, or be empty.")],
    cell: CellOption = None,
) -> None:
    """Make a data directory from a backup.

    Example: hourwheel restore /mnt/backups/monday --data ./queue
    """
    from hourwheel.embedded.backups.restore import restore as restored

    made = restored(source, data, directories_of(cell or []))
    _tell(ctx, made, f"made {data} from {source}; start hourwheel serve --data {data}")


def check(ctx: typer.Context, data: Annotated[Path, typer.Argument(help="The data directory.")]) -> None:
    """Read a whole data directory, and report what is damaged. Changes nothing; exits with 1 for any finding.

    Example: hourwheel check ./queue
    """
    from hourwheel.embedded.checks.check import check as checked

    report = checked(data)
    if settings_of(ctx).json:
        write_json(report)
    else:
        for finding in report.findings:
            write_line(f"{finding.what}. To repair it: {finding.repair}")
        read = (
            f"{report.rows:,} rows of {report.logs:,} logs, {report.pull_rows:,} pull rows, {report.objects:,} objects"
        )
        count = len(report.findings) + report.left_out
        write_line(f"read {read}, {report.messages:,} messages: {count:,} findings")
    if report.findings:
        raise typer.Exit(1)


def _tell(ctx: typer.Context, made: "Backup", line: str) -> None:
    if settings_of(ctx).json:
        write_json(made)
        return
    objects = sum(copied.objects for copied in made.stores.values())
    size = sum(copied.database_bytes + copied.object_bytes for copied in made.stores.values())
    from hourwheel.times import rfc3339

    write_line(f"{line}: as of {rfc3339(made.taken_ms)}, {size / 1_000_000:,.1f} MB, {objects:,} objects")
