"""Reads the answer to the deletion of a subject or of a group."""

from msgspec import Struct


class Deletion(Struct):
    """The answer to a deletion that is not finished in some cells."""

    cells_out: list[str] = []


def cells_out(deletion: Deletion | None) -> list[str]:
    return [] if deletion is None else deletion.cells_out
