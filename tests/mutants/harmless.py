"""Reads ``harmless.toml``: the mutants that change nothing that a check could find, each with the reason."""

import tomllib
from pathlib import Path

PATH = Path(__file__).parent / "harmless.toml"


def reasons() -> dict[str, str]:
    """Returns the reason for each harmless mutant, by the mutant's name."""
    entries = tomllib.loads(PATH.read_text()).get("harmless", [])
    return {entry["mutant"]: entry["reason"] for entry in entries}
