"""Defines the errors of the outbox, and recognises database errors that say that its tables are missing.

OutboxError
├── OutboxMissing     the database has no tables of the outbox, or those of another version: make them
├── OutboxUnreachable the database refuses the connection or does not answer: the relay tries again
└── ServerUnreachable the server did not take the rows in time: they wait for the next relay
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from hourwheel.errors import HourwheelError

_ADVICE = (
    "run `hourwheel outbox create --database URL`, or your migration: `manage.py migrate hourwheel` in Django,"
    " docs/outbox.md shows the one for Alembic"
)


class OutboxError(HourwheelError):
    """The root of the outbox's errors.

    Example:
        >>> try:
        ...     relay.run_once()
        ... except OutboxError as error:
        ...     print(error)
    """


class OutboxMissing(OutboxError):
    """Says that the database has no outbox, or one of another version, and which command makes it.

    Example:
        >>> try:
        ...     status(session)
        ... except OutboxMissing:
        ...     create_table(session)
    """


class OutboxUnreachable(OutboxError):
    """Says that the database of the outbox refuses the connection or does not answer. Its rows wait until it does.

    Example:
        >>> try:
        ...     relay.run_once()
        ... except OutboxUnreachable as error:
        ...     print("try again later:", error)
    """


class ServerUnreachable(OutboxError):
    """Says that the server did not answer, or took no messages, for some seconds. The rows wait for the next relay.

    Example:
        >>> try:
        ...     relay.run_once()
        ... except ServerUnreachable as error:
        ...     print("the rows wait:", error)
    """


def missing(error: BaseException) -> OutboxMissing | None:
    """Returns the error to raise in place of a database error that says that a table or column of the outbox is
    missing. Returns None for any other error."""
    faults = (fault for cause in _causes(error) for fault in _FAULTS if fault.is_named_by(cause))
    fault = next(faults, None)
    return None if fault is None else OutboxMissing(f"{fault.sentence}: {_ADVICE}")


class _TableFault(NamedTuple):
    """A fault of the outbox, by which databases name it."""

    sentence: str
    codes: frozenset[object]
    """The codes of PostgreSQL and MySQL."""
    text: re.Pattern[str]
    """What SQLite writes."""

    def is_named_by(self, error: BaseException) -> bool:
        code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or next(iter(error.args), None)
        return code in self.codes or self.text.search(str(error)) is not None


_FAULTS = (
    _TableFault(
        "the database has no outbox",
        frozenset({"42P01", 1146}),
        re.compile("no such table: hourwheel_outbox"),
    ),
    _TableFault(
        "the outbox of the database is of another version",
        frozenset({"42703", 1054}),
        re.compile("hourwheel_outbox.*has no column|no such column"),
    ),
)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and its causes: SQLAlchemy keeps the driver's error in ``orig``, Django raises its own from
    it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or getattr(cause, "orig", None)
