"""Defines the errors of the outbox, and recognises database errors that say that its tables are missing.

OutboxError
├── OutboxMissing     the database has no tables of the outbox, or those of another version: make them
├── OutboxUnreachable the database refuses the connection or does not answer: the relay tries again
└── ServerUnreachable the server did not take the rows in time: they wait for the next relay
"""

from hourwheel.errors import HourwheelError

_ADVICE = (
    "run `hourwheel outbox create --database URL`, or your migration: `manage.py migrate hourwheel` in Django,"
    " docs/outbox.md shows the one for Alembic"
)
# The codes of PostgreSQL and MySQL for an unknown table and for an unknown column.
_NO_TABLE = {"42P01", 1146}
_NO_COLUMN = {"42703", 1054}


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
    # SQLAlchemy keeps the driver's error in ``orig``, Django raises its own from it.
    cause: BaseException | None = error
    while cause is not None:
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None) or next(iter(cause.args), None)
        text = str(cause)
        if code in _NO_TABLE or "no such table: hourwheel_outbox" in text:
            return OutboxMissing(f"the database has no outbox: {_ADVICE}")
        if code in _NO_COLUMN or ("hourwheel_outbox" in text and "has no column" in text) or "no such column" in text:
            return OutboxMissing(f"the outbox of the database is of another version: {_ADVICE}")
        cause = cause.__cause__ or getattr(cause, "orig", None)
    return None
