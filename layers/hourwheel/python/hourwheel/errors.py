"""Defines every error that the library raises, and what its caller should do about it.

HourwheelError
├── Rejected            the request is wrong: fix it, then send it again      4xx
│   ├── NotFound        the request names something that does not exist       404
│   │   └── GroupRemoved         another process has deleted the group: look it up again
│   ├── Conflict        the request contradicts what is stored                409
│   ├── TooLarge        the request is over a limit                           413
│   └── UnknownEncoding the body has an encoding that is not read             415
├── Unavailable         nothing is wrong with the request: send it again      503
│   ├── Throttled       the store refused the call: certainly no effect
│   │   └── MemoryFull      the server holds as many bytes as it may
│   ├── ChangePending   the change of a delayed message is stored, and made once its wheel answers
│   ├── CellUnavailable         the storage of one cell cannot be used: the others can
│   │   ├── CellFull            no room is left on the volume of the cell       507
│   │   ├── MovePending         the request is recorded, and carried out once the cell answers
│   │   ├── ReceiptsUnavailable every receipt of the request is of such a cell
│   │   └── ErasureUnfinished   such a cell holds data of a deleted subject or group
│   └── OutcomeUnknown  the answer was lost: the call may have had its effect
├── Broken              only a person can repair this: stop                   500
│   ├── Corrupt         stored bytes differ from the written ones
│   ├── Lost            the store has fewer transactions than it had
│   ├── StorageFull     no room is left on the volume                         507
│   ├── NoAccess        the storage is not there, or may not be used
│   └── DataVersion     the data was written by another version
├── Sealed              the log takes no more rows (protocol)
└── Filled              a reserved row was filled by a reader (protocol)
"""

from typing import Self

import msgspec

UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The errors that decoding of damaged bytes raises: ``ValueError`` for text that is not UTF-8, ``RecursionError`` for
lists that are nested too deeply."""


class HourwheelError(Exception):
    """Is the root of the tree."""

    stored_part = False
    """Whether a part of the batch that the caller sends was stored before this error, or may have been."""


class Rejected(HourwheelError):
    """Says that the request cannot be served unless its sender changes it.

    ``slug`` is stable and names the kind of mistake. ``field`` is the JSON path of the wrong value, if there is one.
    The message says what was wrong and what to do.
    """

    status = 400

    def __init__(self, slug: str, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.slug = slug
        self.field = field


class Unauthenticated(Rejected):
    status = 401


class NotGranted(Rejected):
    status = 403


class NotFound(Rejected):
    status = 404


class GroupRemoved(NotFound):
    """Says that the group was deleted since this process read its record, and its logs were erased."""


class Conflict(Rejected):
    status = 409


class TooLarge(Rejected):
    status = 413


class UnknownEncoding(Rejected):
    status = 415


class Unavailable(HourwheelError):
    """Says that the store did not answer in time. Nothing is known to be wrong with the request."""


class Throttled(Unavailable):
    """Says that the store refused the call before the call had any effect."""


class MemoryFull(Throttled):
    """Says that the server holds as many bytes of requests and answers as it may."""


class ChangePending(Unavailable):
    """Says that a cancel or a move of a delayed message is stored, and is carried out once its wheel answers."""


class CellUnavailable(Unavailable):
    """Says that the storage of a cell other than the home cell is out of reach: it does not answer, fails, has no room,
    or is off line. Work on other cells goes on. ``is_logged``: the log of the server has the reason. ``is_lasting``:
    the process that answers does not open the cell at all, so that no repetition helps before it is started anew."""

    def __init__(self, message: str, *, is_logged: bool = False, is_lasting: bool = False) -> None:
        super().__init__(message)
        self.is_logged = is_logged
        self.is_lasting = is_lasting

    def reworded(self, message: str) -> Self:
        """Returns an error of this class, and with these facts, that says ``message``."""
        return type(self)(message, is_logged=self.is_logged, is_lasting=self.is_lasting)


class CellFull(CellUnavailable):
    """Says that a call found no room on the volume of a cell, which can be read. Other calls may find room."""


class MovePending(CellUnavailable):
    """Says that a change of a route is recorded, and is carried out once the cell answers, unless it is withdrawn."""


class ReceiptsUnavailable(CellUnavailable):
    """Says that nothing can be settled now, because all messages of the request are in cells that are out of reach."""


class ErasureUnfinished(CellUnavailable):
    """Says that the ``unfinished`` cells hold messages of a deleted subject or group, and cannot be reached. The
    sweeper erases these once it can reach the cells, or once the cells were given up."""

    def __init__(self, deleted: str, unfinished: list[str]) -> None:
        self.unfinished = unfinished
        super().__init__(
            f"{deleted} was deleted, and is erased in cell {', '.join(unfinished)} once the sweeper can reach it, or"
            " once it is given up"
        )


class OutcomeUnknown(Unavailable):
    """Says that the answer was lost: the call may or may not have had its effect."""


class Broken(HourwheelError):
    """Says that no repetition will help: a person has to repair something."""


class Corrupt(Broken):
    pass


class Lost(Broken):
    pass


class StorageFull(Broken):
    pass


class NoAccess(Broken):
    """Says that the storage does not exist, or that this process may not use it."""


class DataVersion(Broken):
    """Says that this version must not use a store, which ``store_name`` names, because of its format."""

    def __init__(self, store_name: str, *, expected: int, actual: int, written_by: str = "") -> None:
        wrote, use = (f", of Hourwheel {written_by}", f"Hourwheel {written_by}") if written_by else ("", "the version")
        newer = actual > expected
        advice = f"use {use} or a later version" if newer and written_by else "use the version that wrote it"
        super().__init__(
            f"{store_name} has format {actual}{wrote}, and this version of Hourwheel reads format {expected}: {advice},"
            " or restore a backup that this version has made"
        )
        self.expected = expected
        self.actual = actual


class Sealed(HourwheelError):
    """Says that the log was sealed: its end is fixed, and the log accepts no more rows."""


class Filled(HourwheelError):
    """Says that a reader filled a reserved row before its batch arrived: the writer reserves another row."""
