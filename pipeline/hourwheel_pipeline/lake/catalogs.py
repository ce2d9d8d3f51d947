"""Opens the catalog of a lake: SQLite beside the tables on one machine, Glue in the cloud."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import URL
from sqlalchemy.exc import SQLAlchemyError

from hourwheel_pipeline.lake.locations import on_s3

_NAME = "lake"
_FILE = "catalog.db"
# A commit of another process locks the file for a moment.
_BUSY_SECONDS = 30

# Glue limits the calls of an account. Reads may be repeated, commits may not: see _glue.
_READS = ("GetDatabase", "GetTable", "GetTables")
# The waits double from 0.2 s on: 25 s in all.
_READ_TRIES = 8
_THROTTLED = {"OperationTimeoutException", "ThrottlingException", "TooManyRequestsException"}


def open_catalog(root: str, namespace: str, *, region: str | None, endpoint_url: str | None) -> Catalog:
    """Opens the catalog of the lake at ``root``. Creates its folder and its namespace if there are none; other
    processes may do so at the same time."""
    if not on_s3(root):
        Path(root).mkdir(parents=True, exist_ok=True)
    opened = _opened(root, region, endpoint_url)
    # The namespace exists as a rule, and a caller that only uses it needs no right to create it.
    if opened.namespace_exists(namespace):
        return opened
    try:
        opened.create_namespace(namespace)
    except Exception:
        # Another process may have created the namespace since. Each catalog has an error of its own for that.
        if not opened.namespace_exists(namespace):
            raise
    return opened


def find_catalog(root: str, namespace: str, *, region: str | None, endpoint_url: str | None) -> Catalog | None:
    """Opens the catalog of the lake at ``root``. Returns None if there is none, and creates nothing."""
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
        return SqlCatalog(_NAME, **properties)  # another process was creating it


def _glue(root: str, region: str | None, endpoint_url: str | None) -> Catalog:
    # Imported here: it needs boto3, which a lake on one machine does without.
    from pyiceberg.catalog.glue import GlueCatalog

    addresses = {"glue.region": region, "s3.region": region, "glue.endpoint": endpoint_url, "s3.endpoint": endpoint_url}
    properties = {name: value for name, value in addresses.items() if value}
    # A commit that is retried after a lost answer would be refused as overtaken, and its files, which the first try
    # has committed, would be removed.
    no_retries: Any = {"glue.max-retries": 0}
    catalog = GlueCatalog(_NAME, warehouse=root, **properties, **no_retries)
    events: Any = catalog.glue.meta.events
    for read in _READS:
        events.register(f"needs-retry.glue.{read}", _retry_wait)
    return catalog


def _retry_wait(response: tuple[Any, Any] | None, attempts: int, **_: Any) -> float | None:
    """Returns the seconds after which a throttled read is retried; None if it is not retried."""
    error: Mapping[str, str] = response[1].get("Error", {}) if response else {}
    if error.get("Code") not in _THROTTLED or attempts >= _READ_TRIES:
        return None
    return 0.1 * 2.0**attempts
