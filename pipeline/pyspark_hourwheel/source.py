"""Defines the data source, the class that Spark calls."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from hourwheel_pipeline.archive_rows.workers import forget_zip_finders
from pyspark_hourwheel.batch import BatchReader
from pyspark_hourwheel.columns import DDL, chosen_schema
from pyspark_hourwheel.options import BatchOptions, StreamOptions, WriteOptions, read_options
from pyspark_hourwheel.stream import StreamReader
from pyspark_hourwheel.writing import batch_writer, stream_writer


class HourwheelDataSource(DataSource):
    """The format ``hourwheel`` of Spark. ``docs/reference/spark.md`` lists the options of reads and writes.

    A read raises ``ValueError`` for an option that is unknown, missing or wrong, and fails where the archive is damaged
    (option ``onDamage``). A write fails where the server does not take the rows within ``retrySeconds``.

    Example:
        >>> spark.dataSource.register(HourwheelDataSource)
        >>> orders = spark.read.format("hourwheel").options(archive="orders-data/archive", subject="orders").load()
        >>> orders.select("body").orderBy("sequence").first().body
        'order 1'
    """

    @classmethod
    def name(cls) -> str:
        """Names the format.

        Raises nothing.

        Example:
            >>> HourwheelDataSource.name()
            'hourwheel'
        """
        return "hourwheel"

    def schema(self) -> str:
        """Names the columns of a read, as Spark's DDL.

        Raises nothing.

        Example:
            >>> HourwheelDataSource({}).schema().split(",")[0]
            '`subject` string NOT NULL'
        """
        forget_zip_finders()
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        """Makes the reader of a batch, with the columns of the schema that the caller chose.

        Raises:
            ValueError: an option is unknown, missing or wrong.

        Example:
            >>> orders = spark.read.format("hourwheel").options(archive="orders-data/archive", subject="orders")
            >>> orders.option("from", 1).option("to", 3).load().count()
            2
        """
        return BatchReader(read_options(BatchOptions, self.options), chosen_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Makes the reader of a stream, with the columns of the schema that the caller chose.

        Raises:
            ValueError: an option is unknown, missing or wrong.

        Example:
            >>> orders = spark.readStream.format("hourwheel").options(archive="orders-data/archive", subject="orders")
            >>> orders.load().isStreaming
            True
        """
        return StreamReader(read_options(StreamOptions, self.options), chosen_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Makes the writer of a batch: each row becomes a message. The mode must be ``append``.

        Raises:
            ValueError: an option is unknown, missing or wrong, or the columns are not those of a message.

        Example:
            >>> rows = spark.createDataFrame([("paid", "customer-42")], "body string, key string")
            >>> rows.write.format("hourwheel").options(url=url, subject="again").mode("append").save()
            >>> api.pull("again", "billing", "host-1").pulls[0].messages[0].body
            'paid'
        """
        return batch_writer(read_options(WriteOptions, self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Makes the writer of a stream: each row becomes a message.

        Raises:
            ValueError: an option is unknown, missing or wrong, or the columns are not those of a message.

        Example:
            >>> orders = spark.readStream.format("hourwheel").options(archive="orders-data/archive", subject="orders")
            >>> sink = orders.load().select("body").writeStream.format("hourwheel").options(url=url, subject="copies")
            >>> query = sink.option("checkpointLocation", "checkpoint").trigger(availableNow=True).start()
            >>> query.awaitTermination()
            >>> len(api.pull("copies", "billing", "host-1").pulls[0].messages)
            3
        """
        return stream_writer(read_options(WriteOptions, self.options), schema, overwrite)
