"""The data source as Spark meets it."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_hourwheel.batch import BatchReader
from pyspark_hourwheel.columns import DDL, chosen_schema
from pyspark_hourwheel.options import BatchOptions, StreamOptions, WriteOptions, read_options
from pyspark_hourwheel.stream import StreamReader
from pyspark_hourwheel.writing import batch_writer, stream_writer


class HourwheelDataSource(DataSource):
    """Format ``hourwheel``: see ``docs/spark.md``."""

    @classmethod
    def name(cls) -> str:
        return "hourwheel"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(read_options(BatchOptions, self.options), chosen_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(read_options(StreamOptions, self.options), chosen_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(read_options(WriteOptions, self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return stream_writer(read_options(WriteOptions, self.options), schema, overwrite)
