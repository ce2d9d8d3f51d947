"""Sends the rows of a DataFrame, or of a stream, to a subject.

Each chunk is final once the server has accepted it: there is no commit, and nothing is taken back.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from hourwheel.client import AnswerError, Api, Message, ServerUnavailable
from hourwheel.system import SystemIds
from pyspark_hourwheel.chunks import Task, WriteChunk, chunks_of
from pyspark_hourwheel.options import WriteOptions
from pyspark_hourwheel.row_to_message import check_columns, message_of

# Spark's own names: the id of a query is that of its checkpoint.
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


class RowsNotSent(Exception):
    """A task could not send its rows. The message says why, and what to do."""


@dataclass(frozen=True)
class BatchWriter(DataSourceWriter):
    """Writes a batch. ``run`` is drawn on the driver, so all attempts of all tasks share it."""

    options: WriteOptions
    run: str

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        context = _task_context()
        return send(self.options, Task(self.run, 0, context.partitionId()), iterator)


@dataclass(frozen=True)
class StreamWriter(DataSourceStreamWriter):
    options: WriteOptions

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        context = _task_context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise RowsNotSent(
                "Spark does not tell which query and batch this is: without them a repeat cannot be recognised"
            )
        return send(self.options, Task(query, int(batch), context.partitionId()), iterator)


def batch_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> BatchWriter:
    _check(schema, overwrite)
    return BatchWriter(options, options.runid or SystemIds().token().hex())


def stream_writer(options: WriteOptions, schema: StructType, overwrite: bool) -> StreamWriter:
    _check(schema, overwrite)
    if options.runid is not None:
        raise ValueError("format hourwheel: the option 'runid' is for batches: a stream is named by its checkpoint")
    return StreamWriter(options)


def send(options: WriteOptions, task: Task, rows: Iterator[Row]) -> WriterCommitMessage:
    """Sends the rows in order, one chunk after the other. Raises ``RowsNotSent``."""
    with Api(options.url, token=options.token, sign=options.sign, region=options.region) as api:
        for chunk in chunks_of(task, _messages(task, rows)):
            _send_chunk(api, options, task, chunk)
    return WriterCommitMessage()


def _messages(task: Task, rows: Iterator[Row]) -> Iterator[Message]:
    for number, row in enumerate(rows):
        try:
            yield message_of(row.asDict())
        except ValueError as error:
            raise RowsNotSent(f"row {number} of partition {task.partition} is not a message: {error}") from error


def _send_chunk(api: Api, options: WriteOptions, task: Task, chunk: WriteChunk) -> None:
    what = f"chunk {chunk.number} of partition {task.partition}"
    try:
        api.produce(options.subject, chunk.messages, idempotency_key=chunk.key, retry_seconds=options.retryseconds)
    except ServerUnavailable as error:
        raise RowsNotSent(
            f"{what} was not accepted within {options.retryseconds:g} s, and may be stored or not: {error}"
        ) from error
    except AnswerError as error:
        if error.slug == "idempotency-key-reused":
            raise RowsNotSent(
                f"{what} was sent before with other rows, and is not sent again: a task that is repeated must find the"
                " same rows in the same order (sort within the partitions by columns that identify a row), and another"
                " write needs another runId"
            ) from error
        field = f" ({error.problem.field})" if error.problem.field else ""
        raise RowsNotSent(f"{what} was refused: {error}{field}") from error


def _check(schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise ValueError("format hourwheel: messages can only be added: use mode 'append'")
    check_columns(schema)


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None  # Spark calls ``write`` in tasks
    return context
