"""What Spark 4.2 and newer ask of a stream reader that older ones do not know."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

_MODULE = "pyspark.sql.streaming.datasource"


def serves_available_now(reader: type) -> type:
    """Says of a reader that it can stop at what is there: ``prepareForTriggerAvailableNow``."""
    if find_spec(_MODULE) is not None:
        import_module(_MODULE).SupportsTriggerAvailableNow.register(reader)
    return reader


def read_limit(rows: int | None) -> Any:
    """A ``ReadLimit`` of Spark 4.2."""
    module = import_module(_MODULE)
    return module.ReadAllAvailable() if rows is None else module.ReadMaxRows(rows)


def rows_of(limit: Any) -> int | None:
    """Of a ``ReadLimit``: how many rows a batch may have; None: all that there are."""
    rows: int | None = getattr(limit, "max_rows", None)
    return rows
