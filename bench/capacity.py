"""Computes the batches a second that one queue takes from a partition of DynamoDB: the table of docs/costs.md.

A partition takes 1,000 write and 3,000 read units a second, however many tables stand around it. A row of a queue is
written once, at a unit for each KB that it begins. Each group reads it once, at half a unit for each 4 KB that it
begins, as reads may be out of date. ``python -m bench.capacity`` prints the table.
"""

from math import ceil, floor

from bench.cost.meter import write_units

WRITE_UNITS, READ_UNITS = 1_000, 3_000
ROW_BYTES = (1_000, 3_600, 8_000, 12_000)
GROUPS = (1, 4, 10, 70)


def written(row_bytes: int) -> int:
    """Returns the batches a second that one queue can write. Its counter takes one unit for each, in another
    partition."""
    return floor(WRITE_UNITS / write_units(row_bytes))


def read(row_bytes: int, groups: int) -> int:
    """Returns the batches a second that each of these groups can read, a row at a time."""
    return floor(READ_UNITS / (groups * ceil(row_bytes / 4_096) / 2))


def batches(row_bytes: int, groups: int) -> int:
    return min(written(row_bytes), read(row_bytes, groups))


def lines() -> list[str]:
    head = (
        "| row | write units | "
        + " | ".join(f"{groups} groups" if groups > 1 else "1 group" for groups in GROUPS)
        + " |"
    )
    return [head, "| --- " * (len(GROUPS) + 2) + "|", *map(_line, ROW_BYTES)]


def _line(row_bytes: int) -> str:
    cells = (f"{batches(row_bytes, groups):,}" for groups in GROUPS)
    return f"| {row_bytes / 1_000:g} KB | {write_units(row_bytes)} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print("\n".join(lines()))
