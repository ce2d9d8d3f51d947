"""Makes Hourwheel a Spark data source: reads the archive, as a batch or a stream, and writes to subjects."""

from pyspark_hourwheel.source import HourwheelDataSource

__all__ = ["HourwheelDataSource"]
