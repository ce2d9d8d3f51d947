"""Writes a DataFrame and a stream to a subject of a server."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampNTZType

from hourwheel.client import Api, Message, Received
from pyspark_hourwheel import HourwheelDataSource
from pyspark_hourwheel.chunks import Task, chunks_of
from pyspark_hourwheel.options import WriteOptions, read_options
from pyspark_hourwheel.row_to_message import message_of
from pyspark_hourwheel.writing import RowsNotSent, batch_writer, send, stream_writer
from tests.integration.process import Server
from tests.pipeline.connecting import Orders

TOKEN = "sesame"
TASK = Task("run", 0, 3)
BODY = StructField("body", StringType())
_names = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server") / "data", tokens=[TOKEN])
    yield server
    server.stop()
    for pipe in (server.process.stdout, server.process.stderr):
        if pipe is not None:
            pipe.close()


@dataclass
class Target:
    """A subject, and the messages that it has."""

    url: str
    subject: str = field(default_factory=lambda: f"sent-{next(_names)}")

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "token": TOKEN, "subject": self.subject}

    def save(self, frame: DataFrame, **options: str) -> None:
        frame.write.format("hourwheel").mode("append").options(**self.options, **options).save()

    def send(self, *rows: Row, task: Task = TASK, **options: str) -> None:
        """Sends rows as one task does."""
        send(read_options(WriteOptions, {**self.options, **options}), task, iter(rows))

    def messages(self) -> list[Received]:
        """Returns all messages of the subject, by a new group."""
        found: list[Received] = []
        group = f"group-{next(_names)}"
        with Api(self.url, token=TOKEN) as api:
            while pulls := api.pull(self.subject, group, "c1", max_messages=1_000).pulls:
                found += [message for one in pulls for message in one.messages]
        return found

    def bodies(self) -> list[str | bytes]:
        return [message.body for message in self.messages()]

    def pending(self) -> int:
        with Api(self.url, token=TOKEN) as api:
            return api.pending(self.subject, hours=3).messages


@pytest.fixture
def target(server: Server, spark: SparkSession) -> Target:
    spark.dataSource.register(HourwheelDataSource)
    return Target(f"http://127.0.0.1:{server.port}")


def numbers(spark: SparkSession, rows: int, partitions: int = 1) -> DataFrame:
    return spark.range(0, rows, 1, partitions).selectExpr("cast(id as string) as body")


def test_each_row_becomes_a_message_with_all_that_it_has(spark: SparkSession, target: Target) -> None:
    frame = spark.sql(
        """select 'paid ✓' as body, cast(null as binary) as body_bytes, 'customer-42' as key, array('eu') as tags,
                  map('trace', 'abc') as headers, 'order-7' as id, cast(null as timestamp) as deliver_at
           union all select null, unhex('00ff'), null, null, null, 'order-8', null
           union all select 'later', null, null, null, null, 'order-9', current_timestamp() + interval 2 hours"""
    )

    target.save(frame)

    text, data = sorted(target.messages(), key=lambda message: message.id)
    assert (text.id, text.body, text.key, text.tags) == ("order-7", "paid ✓", "customer-42", ["eu"])
    assert text.headers == {"trace": "abc"}
    assert (data.id, data.body, data.key, data.tags, data.headers) == ("order-8", b"\x00\xff", None, [], {})
    assert target.pending() == 1


def test_all_partitions_are_sent_each_in_its_order(spark: SparkSession, target: Target) -> None:
    target.save(numbers(spark, 2_500, partitions=2))

    found = [int(body) for body in target.bodies()]

    assert sorted(found) == list(range(2_500))
    for half in (range(1_250), range(1_250, 2_500)):
        assert [number for number in found if number in half] == list(half)


def test_a_write_that_failed_midway_and_is_repeated_sends_nothing_twice(spark: SparkSession, target: Target) -> None:
    broken = numbers(spark, 1_500).selectExpr("if(body = '1400', null, body) as body")
    with pytest.raises(PySparkException, match=r"row 1400 of partition 0 is not a message"):
        target.save(broken, runId="2026-11-20")
    assert len(target.bodies()) == 1_000

    target.save(numbers(spark, 1_500), runId="2026-11-20")
    target.save(numbers(spark, 1_500), runId="2026-11-20")

    assert target.bodies() == [str(number) for number in range(1_500)]
    assert len({message.id for message in target.messages()}) == 1_500


def test_each_write_without_a_run_id_is_another_write(spark: SparkSession, target: Target) -> None:
    target.save(numbers(spark, 1))
    target.save(numbers(spark, 1))

    assert target.bodies() == ["0", "0"]


def test_a_repeat_with_other_rows_is_refused(target: Target) -> None:
    target.send(Row(body="a"))

    with pytest.raises(
        RowsNotSent, match=r"chunk 0 of partition 3 was sent before with other rows, and is not sent again"
    ):
        target.send(Row(body="b"))
    assert target.bodies() == ["a"]


def test_a_message_that_the_server_refuses_fails_the_task_with_its_sentence(target: Target) -> None:
    with pytest.raises(
        RowsNotSent, match=r"chunk 0 of partition 3 was refused: .*at least 1 character \(messages\[1\]\.key\)"
    ):
        target.send(Row(body="a", key="k"), Row(body="b", key=""))
    assert target.bodies() == []


def test_a_row_that_is_no_message_fails_the_task_with_its_place(target: Target) -> None:
    with pytest.raises(
        RowsNotSent, match=r"row 1 of partition 3 is not a message: .* exactly one of body and body_bytes"
    ):
        target.send(Row(body="a"), Row(body=None))
    with pytest.raises(RowsNotSent, match=r"row 0 of partition 3 is not a message: give delay or deliver_at, not both"):
        target.send(Row(body="a", delay="1h", deliver_at=datetime(2999, 1, 1, tzinfo=UTC)))


def test_a_server_that_is_away_fails_the_task_when_its_time_is_up(server: Server) -> None:
    with pytest.raises(RowsNotSent, match=r"was not accepted within 0 s, and may be stored or not"):
        Target("http://127.0.0.1:1").send(Row(body="a"), retrySeconds="0")


def test_a_stream_that_repeats_a_batch_sends_nothing_twice(spark: SparkSession, target: Target, tmp_path: Path) -> None:
    orders, checkpoint = Orders(tmp_path / "archive"), tmp_path / "checkpoint"
    source = spark.readStream.format("hourwheel").option("archive", str(orders.folder)).option("subject", "orders")

    def run() -> None:
        sink = source.load().select("body").writeStream.format("hourwheel").options(**target.options)
        sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    orders.archive("a", "b")
    run()
    shutil.rmtree(checkpoint / "commits")  # as if it had stopped when all was sent, before it noted that
    orders.archive("c")
    run()
    run()

    assert target.bodies() == ["a", "b", "c"]


COLUMNS = [
    (
        StructType([BODY, StructField("offset", LongType())]),
        r"a message has no offset: select only columns of a message, of body, body_bytes, key",
    ),
    (StructType().add("key", "string"), r"a message needs a body: give a column body \(string\) or body_bytes"),
    (StructType().add("body", "long"), r"column body is bigint, cast it to string"),
    (
        StructType([BODY, StructField("deliver_at", TimestampNTZType())]),
        r"column deliver_at is timestamp_ntz, cast it to timestamp",
    ),
]


@pytest.mark.parametrize(("schema", "sentence"), COLUMNS, ids=["unknown", "no body", "no text", "no zone"])
def test_columns_that_are_no_part_of_a_message_are_refused_by_name(schema: StructType, sentence: str) -> None:
    options = WriteOptions(url="http://127.0.0.1:1", subject="orders")
    for writer in (batch_writer, stream_writer):
        with pytest.raises(ValueError, match=sentence):
            writer(options, schema, overwrite=False)


def test_messages_that_were_sent_cannot_be_overwritten(spark: SparkSession, target: Target) -> None:
    with pytest.raises(PySparkException, match=r"messages can only be added: use mode 'append'"):
        numbers(spark, 1).write.format("hourwheel").mode("overwrite").options(**target.options).save()


def test_a_stream_takes_no_run_id_and_nothing_both_a_token_and_a_signature() -> None:
    given = {"url": "https://example.com", "subject": "orders"}
    with pytest.raises(ValueError, match=r"'runid' is for batches: a stream is named by its checkpoint"):
        stream_writer(read_options(WriteOptions, {**given, "runid": "a"}), StructType([BODY]), overwrite=False)
    with pytest.raises(ValueError, match=r"give token or sign, not both"):
        read_options(WriteOptions, {**given, "token": "a", "sign": "aws"})


def lengths(messages: list[Message]) -> list[int]:
    return [len(chunk.messages) for chunk in chunks_of(TASK, messages)]


def test_chunks_are_as_large_as_a_request_may_be() -> None:
    assert lengths([Message("a")] * 2_100) == [1_000, 1_000, 100]
    assert lengths([Message("a" * (1 << 20))] * 5) == [3, 2]
    assert lengths([Message(b"a" * (1 << 20))] * 5) == [2, 2, 1]
    assert lengths([Message("\x01" * (1 << 20))] * 2) == [1, 1]
    assert lengths([Message('"' * 600_000)] * 3) == [1, 1, 1]


def test_a_chunk_falls_due_in_few_hours() -> None:
    first = datetime(2026, 11, 20, tzinfo=UTC)
    at = [Message("a", deliver_at=first + timedelta(minutes=30 * step)) for step in range(240)]
    assert lengths(at) == [100, 100, 40]
    assert lengths([Message("a", delay=3_600.0 * step) for step in range(120)]) == [50, 50, 20]


def test_names_of_chunks_differ_by_task_batch_and_chunk() -> None:
    messages = [Message("a")] * 1_001
    tasks = [Task("run", 0, 0), Task("run", 0, 1), Task("run", 1, 0), Task("other", 0, 0)]
    named = [chunk for task in tasks for chunk in chunks_of(task, messages)]

    assert len({chunk.key for chunk in named}) == 8
    assert len({message.id for chunk in named for message in chunk.messages}) == 4 * 1_001
    assert [chunk.key for chunk in chunks_of(tasks[0], messages)] == [chunk.key for chunk in named[:2]]


def test_a_time_that_the_clocks_of_the_worker_show_twice_is_the_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    twice = message_of({"body": "a", "deliver_at": datetime.fromisoformat("2026-10-25T02:30:00")})
    once = message_of({"body": "a", "deliver_at": datetime.fromisoformat("2026-10-25T01:30:00")})
    monkeypatch.undo()
    time.tzset()

    assert twice.deliver_at == "2026-10-25T01:30:00.000Z"
    assert once.deliver_at == "2026-10-24T23:30:00.000Z"
