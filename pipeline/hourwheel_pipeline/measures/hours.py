"""Hours, and percentiles of times."""

from pyspark.sql import Column
from pyspark.sql import functions as fn

from hourwheel.archive.segments import HOUR_MS

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}

_DIGITS = 3


def hour(at: Column | str, step_ms: int = HOUR_MS) -> Column:
    """The hour of a time, or the step of that length."""
    floor = fn.floor(fn.unix_millis(at) / step_ms) * step_ms
    return fn.timestamp_millis(floor.cast("bigint")).alias("hour")


def milliseconds(since: Column | str, until: Column | str) -> Column:
    """Between the two; 0 where clocks disagree."""
    return fn.greatest(fn.unix_millis(until) - fn.unix_millis(since), fn.lit(0))


def percentiles(name: str, value: Column, weight: Column) -> list[Column]:
    """``{name}_p50_ms`` and so on: of a time that so many messages have. Times count with three digits, so that few
    different ones are held at once."""
    shares = fn.array(*(fn.lit(share) for share in PERCENTILES.values()))
    found = fn.percentile(_rounded(value), shares, weight)
    whole = (fn.round(fn.get(found, fn.lit(at))).cast("bigint") for at in range(len(PERCENTILES)))
    return [column.alias(f"{name}_{share}_ms") for share, column in zip(PERCENTILES, whole, strict=True)]


def _rounded(value: Column) -> Column:
    unit = fn.greatest(fn.lit(1.0), fn.pow(fn.lit(10.0), fn.floor(fn.log10(value)) - (_DIGITS - 1)))
    return fn.when(value > 0, fn.round(value / unit) * unit).otherwise(fn.lit(0.0))
