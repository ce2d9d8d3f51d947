"""Declares the tables of the outbox for SQLAlchemy, so that Alembic finds them in the metadata of an application."""

from typing import Any

_LONG_BLOB = (1 << 32) - 1  # the size of MySQL's LONGBLOB: its BLOB takes 64 KiB only; other databases have one kind


def table(metadata: Any) -> Any:
    """Adds the two tables of the outbox to a ``MetaData`` of SQLAlchemy, and returns the table of the rows. Alembic's
    ``--autogenerate`` then writes the migration, and ``metadata.create_all`` makes the tables.

    Raises:
        InvalidRequestError: the metadata has a table ``hourwheel_outbox`` already.

    Example:
        >>> table(Base.metadata).name
        'hourwheel_outbox'
    """
    from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, SmallInteger, String, Table, Text

    blob = LargeBinary(_LONG_BLOB)
    number = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers rows in a column of type INTEGER only
    Table(
        "hourwheel_outbox_shard",
        metadata,
        Column("shard", SmallInteger, primary_key=True, autoincrement=False),
        Column("sender", String(100), nullable=False),
        Column("sequence", BigInteger, nullable=False, server_default="0"),
        Column("batch", blob),
        Column("token", String(64), nullable=False, server_default=""),
        Column("relay", String(200), nullable=False, server_default=""),
        Column("lease_until_ms", BigInteger, nullable=False, server_default="0"),
    )
    return Table(
        "hourwheel_outbox",
        metadata,
        Column("id", number, primary_key=True, autoincrement=True),
        Column("state", SmallInteger, nullable=False, server_default="0"),
        Column("shard", SmallInteger, nullable=False),
        Column("subject", String(100), nullable=False),
        Column("message", blob, nullable=False),
        Column("size_bytes", Integer, nullable=False),
        Column("created_ms", BigInteger, nullable=False),
        Column("settled_ms", BigInteger),
        Column("reason", Text),
        Index("hourwheel_outbox_waiting", "state", "shard", "id"),
        sqlite_autoincrement=True,
    )
