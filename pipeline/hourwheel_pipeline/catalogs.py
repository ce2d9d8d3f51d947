"""The catalog of a lake: SQLite beside the tables on one machine, Glue in the cloud."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from hourwheel_pipeline.locations import on_s3

_NAME = "lake"
_FILE = "catalog.db"
_BUSY_SECONDS = 30

_READS = ("GetDatabase", "GetTable", "GetTables")
_READ_TRIES = 8
_THROTTLED = {"OperationTimeoutException", "ThrottlingException", "TooManyRequestsException"}


def open_catalog(root: str, namespace: str, *, region: str | None, endpoint_url: str | None) -> Catalog:
    """Opens the catalog of the lake at ``root`` and makes what it lacks, whoever else is doing so."""
    if not on_s3(root):
        Path(root).mkdir(parents=True, exist_ok=True)
    opened = _opened(root, region, endpoint_url)
    # It is there as a rule, and who only uses it need not be allowed to make it.
    if opened.namespace_exists(namespace):
        return opened
    try:
        opened.create_namespace(namespace)
    except Exception:
        # Others may have made it since we looked. Each catalog says so in its own way.
        if not opened.namespace_exists(namespace):
            raise
    return opened


def find_catalog(root: str, namespace: str, *, region: str | None, endpoint_url: str | None) -> Catalog | None:
    """Opens the catalog of the lake at ``root``; None where there is none, and nothing is made."""
    if not on_s3(root) and not Path(root, _FILE).exists():
        return None
    opened = _opened(root, region, endpoint_url)
    if opened.namespace_exists(namespace):
        return opened
    opened.close()
    return None


def _opened(root: str, region: str | None, endpoint_url: str | None) -> Catalog:
    return _glue(root, region, endpoint_url) if on_s3(root) else _sqlite(root)


def _sqlite(root: str) -> Catalog:
    uri = URL.create("sqlite", database=f"{root}/{_FILE}", query={"timeout": str(_BUSY_SECONDS)})
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
    found = GlueCatalog(_NAME, warehouse=root, **properties, **once)
    events: Any = found.glue.meta.events
    for read in _READS:
        events.register(f"needs-retry.glue.{read}", _again)
    return found


def _again(response: tuple[Any, Any] | None, attempts: int, **_: Any) -> float | None:
    """The seconds after which a read that Glue had no time for is asked again; None: it is not."""
    error: Mapping[str, str] = response[1].get("Error", {}) if response else {}
    if error.get("Code") not in _THROTTLED or attempts >= _READ_TRIES:
        return None
    return 0.1 * 2.0**attempts
