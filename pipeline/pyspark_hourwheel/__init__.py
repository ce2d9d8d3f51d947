"""Hourwheel as a Spark data source: its archive to read, in batches and as a stream, and its subjects to write to.

spark.dataSource.register(HourwheelDataSource)
spark.read.format("hourwheel").option("archive", "s3://bucket/archive").option("subject", "orders").load()
"""

from pyspark_hourwheel.source import HourwheelDataSource

__all__ = ["HourwheelDataSource"]
