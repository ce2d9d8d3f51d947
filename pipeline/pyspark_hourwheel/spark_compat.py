"""Lets stream readers work with Spark before 4.2 and from 4.2 on."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MODULE = "pyspark.sql.streaming.datasource"


def serves_available_now(reader: type) -> type:
    """Registers a reader as one that supports ``Trigger.AvailableNow``, if Spark knows that."""
    if find_spec(_MODULE) is not None:
        import_module(_MODULE).SupportsTriggerAvailableNow.register(reader)
    return reader


def read_limit(rows: int | None) -> Any:
    """Returns a ``ReadLimit`` of Spark 4.2."""
    module = import_module(_MODULE)
    return module.ReadAllAvailable() if rows is None else module.ReadMaxRows(rows)


def rows_of(limit: Any) -> int | None:
    """Returns the most rows of a batch under a ``ReadLimit``; None for no limit."""
    rows: int | None = getattr(limit, "max_rows", None)
    return rows
