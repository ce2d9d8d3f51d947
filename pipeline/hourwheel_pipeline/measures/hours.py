"""Makes columns for hours, for lengths of time, and for their percentiles."""

from pyspark.sql import Column
from pyspark.sql import functions as fn

from hourwheel.times import HOUR_MS

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}

_DIGITS = 3


def hour(at: Column | str, step_ms: int = HOUR_MS) -> Column:
    """Returns the hour of a time, or the start of the step of ``step_ms`` that contains the time."""
    floor = fn.floor(fn.unix_millis(at) / step_ms) * step_ms
    return fn.timestamp_millis(floor.cast("bigint")).alias("hour")


def milliseconds(since: Column | str, until: Column | str) -> Column:
    """Returns the milliseconds between two times; 0 if the second time is earlier, because clocks differ."""
    return fn.greatest(fn.unix_millis(until) - fn.unix_millis(since), fn.lit(0))


def percentiles(name: str, value: Column, weight: Column) -> list[Column]:
    """Returns the columns ``{name}_p50_ms``, ``{name}_p90_ms`` and so on, of the times ``value``, each of which
    ``weight`` messages took. Times are rounded to three digits, so that Spark holds few different values at once."""
    shares = fn.array(*(fn.lit(share) for share in PERCENTILES.values()))
    times = fn.percentile(_rounded(value), shares, weight)
    rounded = (fn.round(fn.get(times, fn.lit(i))).cast("bigint") for i in range(len(PERCENTILES)))
    return [column.alias(f"{name}_{share}_ms") for share, column in zip(PERCENTILES, rounded, strict=True)]


def _rounded(value: Column) -> Column:
    unit = fn.greatest(fn.lit(1.0), fn.pow(fn.lit(10.0), fn.floor(fn.log10(value)) - (_DIGITS - 1)))
    return fn.when(value > 0, fn.round(value / unit) * unit).otherwise(fn.lit(0.0))
