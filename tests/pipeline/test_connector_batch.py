"""Reads an archive as a DataFrame."""

import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hourwheel.archive.blocks import RegistrySnapshot, encode_registry
from hourwheel.archive.segments import join, segment_key
from hourwheel.logs.codec import HEADER_BYTES
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.retention.kinds import REGISTRY
from hourwheel.retention.manifests import Manifest, Segment, commit
from pyspark_hourwheel import HourwheelDataSource
from pyspark_hourwheel.scanning import UnreadableSegment
from tests.pipeline.connecting import HOUR_MS, NOON_MS, Orders, moment, read, reader_of, scanned


@pytest.fixture
def orders(tmp_path: Path) -> Orders:
    return Orders(tmp_path / "archive")


@pytest.fixture(autouse=True)
def _registered(spark: SparkSession) -> None:
    spark.dataSource.register(HourwheelDataSource)


def test_each_message_comes_once_with_all_that_it_has(spark: SparkSession, orders: Orders) -> None:
    full = Message(
        body="paid ✓",
        id="order-7",
        key="customer-42",
        tags=["eu", "vip"],
        headers={"trace": "abc"},
        due_at="2025-11-20T12:00:00.250Z",
    )
    orders.builder.row("orders~1/0", [full, Message(body_base64=b"\x00\xff", id="order-8")], NOON_MS)
    orders.builder.row("orders~1/1", [Message(body="in the other queue", id="order-9")], NOON_MS + 1)
    orders.builder.commit()

    frame = read(spark, orders)

    assert frame.columns == [
        *("subject", "queue", "sequence", "id", "key", "tags", "headers", "body", "body_bytes", "accepted_at", "due_at")
    ]
    noon = datetime.fromtimestamp(NOON_MS / 1_000, UTC)
    found = [tuple(row) for row in frame.selectExpr(*_AS_TEXT).orderBy("queue", "sequence").collect()]
    assert found == [
        (
            *("orders", 0, 0, "order-7", "customer-42", ["eu", "vip"], {"trace": "abc"}, "paid ✓", None),
            *(_text(noon), "2025-11-20 12:00:00.25"),
        ),
        ("orders", 0, 1, "order-8", None, None, None, None, bytearray(b"\x00\xff"), _text(noon), None),
        ("orders", 1, 0, "order-9", None, None, None, "in the other queue", None, _text(noon) + ".001", None),
    ]


_AS_TEXT = [
    *("subject", "queue", "sequence", "id", "key", "tags", "headers", "body", "body_bytes"),
    *("cast(accepted_at as string) at", "cast(due_at as string) due"),
]


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def test_only_the_queues_of_the_subject_are_read(orders: Orders) -> None:
    orders.add("mine")
    orders.add("of another", subject="orders.eu")
    for log in (
        "orders~1/retry/billing~1",
        "orders~1/dead/billing~1",
        "orders~1/dead",
        "schedule/1763640000000-60/000",
    ):
        orders.builder.row(log, [Message(body=log)], NOON_MS)
    orders.builder.row("orders~1/0", [], NOON_MS)
    orders.archive("mine, too")

    assert scanned(orders) == ["mine", "mine, too"]


def test_one_queue_can_be_chosen(orders: Orders) -> None:
    orders.add("zero", queue=0)
    orders.add("one", queue=1)
    orders.builder.commit()

    assert scanned(orders, queue="1") == ["one"]
    assert scanned(orders, queue="2") == []


def test_a_range_of_sequences_holds_in_each_queue(orders: Orders) -> None:
    orders.archive("a0", "a1", "a2", queue=0)
    orders.archive("b0", queue=1)
    orders.archive("a3", "a4", queue=0)
    orders.archive("b1", "b2", queue=1)

    assert scanned(orders, **{"from": "1", "to": "4"}) == ["a1", "a2", "a3", "b1", "b2"]
    assert scanned(orders, **{"from": "4"}) == ["a4"]
    assert scanned(orders, to="1") == ["a0", "b0"]


def test_a_range_of_times_takes_its_start_and_leaves_its_end(orders: Orders) -> None:
    for hour in range(4):
        orders.add(f"at {hour}", at_ms=NOON_MS + hour * HOUR_MS)
        orders.add(f"a little after {hour}", at_ms=NOON_MS + hour * HOUR_MS + 1)
    orders.builder.commit()

    found = scanned(orders, **{"from": moment(NOON_MS + HOUR_MS), "to": moment(NOON_MS + 2 * HOUR_MS + 1)})

    assert found == ["at 1", "a little after 1", "at 2"]


def test_an_empty_range_gives_no_rows(spark: SparkSession, orders: Orders) -> None:
    orders.archive("a", "b")

    assert read(spark, orders, **{"from": "2"}).count() == 0
    assert read(spark, orders, **{"from": "1", "to": "1"}).count() == 0


def test_of_a_subject_that_was_made_again_the_newest_generation_is_read(orders: Orders) -> None:
    orders.archive("old", generation=1)
    orders.archive("new", generation=2)

    assert scanned(orders) == ["new"]
    assert scanned(orders, generation="1") == ["old"]
    with pytest.raises(
        ValueError,
        match=r"generation 3 of subject 'orders' has no messages in the archive; generations with messages: 1, 2$",
    ):
        scanned(orders, generation="3")


def test_columns_can_be_chosen_and_come_in_that_order(spark: SparkSession, orders: Orders) -> None:
    orders.archive("a", "b")
    source = spark.read.format("hourwheel").option("archive", str(orders.folder)).option("subject", "orders")

    found = source.schema("body string, sequence long").load()

    assert sorted(tuple(row) for row in found.collect()) == [("a", 0), ("b", 1)]
    with pytest.raises(PySparkException, match=r"no columns like sequence; its columns are `subject` string"):
        source.schema("body string, sequence int").load().collect()
    with pytest.raises(PySparkException, match=r"no columns like key"):
        source.schema("key string not null").load().collect()


WRONG = [
    ({"subject": ""}, r"option 'subject': it must match \[A-Za-z"),
    ({"queue": "first"}, r"option 'queue': give a whole number, not 'first'"),
    ({"from": "yesterday"}, r"option 'from': 'yesterday' is none: give a sequence, such as 1041, or a time"),
    ({"to": "2026-11-20 09:00:00"}, r"option 'to': .* or a time with a zone, such as 2026-11-20T09:00:00Z"),
    ({"ondamage": "ignore"}, r"option 'ondamage': give 'fail' or 'skip', not 'ignore'"),
    ({"topic": "orders"}, r"there is no option 'topic' here; the options are archive, endpoint, from, generation"),
]


@pytest.mark.parametrize(("options", "sentence"), WRONG, ids=[next(iter(options)) for options, _ in WRONG])
def test_a_wrong_option_is_refused_in_a_sentence(orders: Orders, options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        reader_of(orders, **options)


def test_spark_shows_the_sentences_about_wrong_options(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"the option 'archive' is missing; the option 'subject' is missing"):
        spark.read.format("hourwheel").load().collect()


def test_a_location_without_an_archive_is_refused(orders: Orders) -> None:
    with pytest.raises(ValueError, match=r"nothing is archived at .* yet: is the option 'archive' right"):
        scanned(orders)


def test_a_subject_is_unknown_when_the_registry_lacks_it(orders: Orders) -> None:
    subject = Subject(name="orders", generation=1, queues=1, retention_seconds=60, created_ms=NOON_MS)
    data = join(REGISTRY, [encode_registry(RegistrySnapshot([subject], []))])
    key = segment_key(REGISTRY, NOON_MS, "registry")
    orders.blobs.put(key, data)
    snapshot = Segment(
        key=key,
        kind=REGISTRY,
        bytes=len(data),
        checksum=zlib.crc32(data),
        rows=1,
        messages=0,
        earliest_ms=NOON_MS,
        latest_ms=NOON_MS,
        parts=[],
    )
    nothing = {"spans": [], "unreadable": [], "missing": [], "complete_ms": 0, "began_ms": NOON_MS, "ended_ms": NOON_MS}
    assert commit(orders.blobs, Manifest(number=0, store="made-up", previous="", segments=[snapshot], **nothing))

    assert scanned(orders) == []
    with pytest.raises(ValueError, match=r"knows no subject 'ordres'"):
        scanned(orders, subject="ordres")


DAMAGES: dict[str, tuple[Callable[[bytes], bytes | None], list[str]]] = {
    "missing": (lambda data: None, []),
    "cut off": (lambda data: data[:-1], []),
    "longer": (lambda data: data + b"\x00", []),
    "changed": (lambda data: data[: HEADER_BYTES + 2] + b"\x00" + data[HEADER_BYTES + 3 :], []),
    "of a newer format": (lambda data: data[:-8] + b"\x02\x00\x00\x00" + data[-4:], []),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_segment_stops_the_read_unless_it_is_to_be_left_out(
    orders: Orders, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    orders.archive("a", "b")
    orders.archive("c")
    key = orders.segments()[0]
    orders.damage(key, DAMAGES[damage][0])

    with pytest.raises(UnreadableSegment, match=rf"{key} of archive .* cannot be read: .* option onDamage=skip"):
        scanned(orders)
    assert scanned(orders, ondamage="skip") == ["c"]
    assert [key in record.message for record in caplog.records] == [True]


def test_a_damaged_segment_fails_the_job_with_its_name(spark: SparkSession, orders: Orders) -> None:
    orders.archive("a")
    (key,) = orders.segments()
    orders.damage(key, lambda data: data[:-1])

    with pytest.raises(PySparkException, match=key):
        read(spark, orders).collect()


def test_small_segments_share_partitions(orders: Orders) -> None:
    for number in range(100):
        orders.archive(f"{number:02d}")

    assert [len(one.parts) for one in reader_of(orders).partitions()] == [64, 36]
    assert scanned(orders) == [f"{number:02d}" for number in range(100)]


def test_large_segments_have_a_partition_each(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_hourwheel.scanning._SLICE_BYTES", 100)
    for number in range(3):
        orders.archive(f"{number}" * 100)

    assert len(reader_of(orders).partitions()) == 3
    assert scanned(orders) == ["0" * 100, "1" * 100, "2" * 100]


def test_the_segments_of_a_small_archive_are_divided_evenly(orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        orders.archive(f"{number}" * 100)
    size = sum(part.work.bytes for one in reader_of(orders).partitions() for part in one.parts)
    monkeypatch.setattr("pyspark_hourwheel.scanning._LEAST_BYTES", size // 4)

    assert [len(one.parts) for one in reader_of(orders).partitions()] == [2, 2, 3, 2]
    assert scanned(orders) == [f"{number}" * 100 for number in range(9)]
