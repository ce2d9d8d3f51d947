"""Creates the table in which ``SqlAlchemyStore`` remembers messages, or declares it for Alembic."""

from hourwheel.apps.idempotency.sqlalchemy import AsyncSqlAlchemyStore, SqlAlchemyStore, create_table, table

__all__ = ["AsyncSqlAlchemyStore", "SqlAlchemyStore", "create_table", "table"]
