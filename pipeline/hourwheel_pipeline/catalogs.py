"""The catalog of a lake: SQLite beside the tables on one machine, Glue in the cloud."""

from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from hourwheel_pipeline.places import on_s3

_NAME = "lake"
_BUSY_SECONDS = 30


def open_catalog(root: str, namespace: str, *, region: str | None, endpoint_url: str | None) -> Catalog:
    """Opens the catalog of the lake at ``root`` and makes what it lacks, whoever else is doing so."""
    opened = _glue(root, region, endpoint_url) if on_s3(root) else _sqlite(root)
    try:
        opened.create_namespace_if_not_exists(namespace)
    except Exception:
        # Others may have made it since we looked. Each catalog says so in its own way.
        if not opened.namespace_exists(namespace):
            raise
    return opened


def _sqlite(root: str) -> Catalog:
    Path(root).mkdir(parents=True, exist_ok=True)
    uri = URL.create("sqlite", database=f"{root}/catalog.db", query={"timeout": str(_BUSY_SECONDS)})
    properties = {"uri": uri.render_as_string(), "warehouse": root}
    try:
        return SqlCatalog(_NAME, **properties)
    except SQLAlchemyError:
        return SqlCatalog(_NAME, **properties)  # another one was making it


def _glue(root: str, region: str | None, endpoint_url: str | None) -> Catalog:
    # It needs boto3, and one machine does not.
    from pyiceberg.catalog.glue import GlueCatalog

    given = {"glue.region": region, "s3.region": region, "glue.endpoint": endpoint_url, "s3.endpoint": endpoint_url}
    properties = {name: value for name, value in given.items() if value}
    # A commit that is asked for again after a lost answer would be told that somebody else was faster, and what it has
    # written would be removed.
    once: Any = {"glue.max-retries": 0}
    return GlueCatalog(_NAME, warehouse=root, **properties, **once)
