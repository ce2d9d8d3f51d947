"""Says where the data, the archive and the lake of a command are."""

from pathlib import Path

import msgspec
import typer

from hourwheel.errors import HourwheelError


class Missing(HourwheelError):
    """Says that a package or file that the command needs is missing."""


class Locations(msgspec.Struct, frozen=True):
    """Says where the archive and the lake are, and the data directory if they belong to one."""

    data: Path | None
    archive: str
    lake: str
    cells: dict[str, Path] = {}
    """The data directories of other cells, by name."""

    @property
    def options(self) -> dict[str, str]:
        return {"archive": self.archive, "lake": self.lake, "output": self.report}

    @property
    def report(self) -> str:
        return f"{self.lake.rstrip('/')}/report"


def locations_of(data: Path | None, archive: str | None, lake: str | None) -> Locations:
    if data is None:
        if archive is None or lake is None:
            raise typer.BadParameter("name --data, or --archive and --lake, or on AWS --stack")
        return Locations(None, archive, lake)
    if archive is None and not (data / "format").exists():
        raise typer.BadParameter(f"{data} is no data directory: give the directory of hourwheel serve --data")
    return Locations(data, archive or str(data / "archive"), lake or str(data / "lake"))
