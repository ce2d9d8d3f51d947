"""Alembic writes the migration of the outbox from the application's metadata."""

from __future__ import annotations

import textwrap

import sqlalchemy
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations

from hourwheel import outbox
from tests.apps.outbox.test_sessions import an_engine


def test_the_migration_that_alembic_writes_makes_an_outbox(postgres: str) -> None:
    metadata = sqlalchemy.MetaData()
    outbox.table(metadata)
    with an_engine(postgres) as engine, engine.begin() as connection:
        context = MigrationContext.configure(connection)
        upgrade = produce_migrations(context, metadata).upgrade_ops
        assert upgrade is not None
        code = render_python_code(upgrade)
        with Operations.context(context) as op:
            exec(textwrap.dedent("    " + code), {"op": op, "sa": sqlalchemy})
        assert compare_metadata(context, metadata) == []
        outbox.send(connection, "orders", "paid")
        assert outbox.status(connection).waiting == 1
