"""Measures the Spark data source: reads an archive as a batch and as a stream, beside the same messages in Parquet, and
sends rows to a server. ``python -m bench.connector``, on ``local[2]``."""

import argparse
import base64
import json
import os
import random
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench.measures import median, today
from bench.serving import server
from hourwheel.adapters.files import FileBlobs
from hourwheel.archive.blocks import Entry, encode_messages
from hourwheel.archive.segments import join, segment_key
from hourwheel.model.messages import Message
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.manifests import Manifest, Segment, SegmentPart, Span, commit
from pyspark_hourwheel import HourwheelDataSource

BODY_BYTES = 100
ROW_MESSAGES = 100
BLOCK_MESSAGES = 8_000
SEGMENT_MESSAGES = 80_000
LOG = "orders~1/0"
BEGAN_MS = 1_763_640_000_000
ROUNDS = 3


def body(number: int, noise: random.Random) -> str:
    """Returns JSON of 100 bytes, a third of it noise."""
    text = json.dumps({"order": number, "customer": f"c-{number % 977}", "note": ""})
    left = BODY_BYTES - len(text)
    filler = base64.b64encode(noise.randbytes(left)).decode()[: left * 2 // 3]
    return text[:-2] + filler + "." * (left - len(filler)) + text[-2:]


def make_archive(folder: Path, messages: int) -> None:
    """Writes an archive of one log as the archiver does, with rows of a hundred messages."""
    archive, noise = FileBlobs(folder), random.Random(messages)
    segments = [segment(archive, first, noise) for first in range(0, messages, SEGMENT_MESSAGES)]
    rows = messages // ROW_MESSAGES
    manifest = Manifest(
        number=0,
        store="bench",
        previous="",
        began_ms=BEGAN_MS,
        ended_ms=BEGAN_MS,
        complete_ms=0,
        segments=segments,
        spans=[Span(kind=MESSAGES, log=LOG, start=0, end=rows, messages=messages, behind=0)],
        unreadable=[],
        missing=[],
    )
    assert commit(archive, manifest)


def segment(archive: FileBlobs, first: int, noise: random.Random) -> Segment:
    blocks = []
    for start in range(first, first + SEGMENT_MESSAGES, BLOCK_MESSAGES):
        numbers = range(start, start + BLOCK_MESSAGES)
        entries = [
            Entry(0, at // ROW_MESSAGES, at, ROW_MESSAGES, ROW_MESSAGES, BEGAN_MS + at // 1_000, 0)
            for at in numbers[::ROW_MESSAGES]
        ]
        messages = [
            Message(body=body(at, noise), key=f"customer-{at % 977}", id=f"019ac0000000-{at:012d}") for at in numbers
        ]
        blocks.append(encode_messages([LOG], entries, messages))
    data, end = join(MESSAGES, blocks), first + SEGMENT_MESSAGES
    key = segment_key(MESSAGES, BEGAN_MS, f"{first:012d}")
    archive.put(key, data)
    part = SegmentPart(
        log=LOG,
        start=first // ROW_MESSAGES,
        end=end // ROW_MESSAGES,
        first=first,
        following=end,
        messages=SEGMENT_MESSAGES,
    )
    return Segment(
        key=key,
        kind=MESSAGES,
        bytes=len(data),
        checksum=zlib.crc32(data),
        rows=SEGMENT_MESSAGES // ROW_MESSAGES,
        messages=SEGMENT_MESSAGES,
        earliest_ms=BEGAN_MS,
        latest_ms=BEGAN_MS + end // 1_000,
        parts=[part],
    )


@contextmanager
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.dataSource.register(HourwheelDataSource)
    yield session
    session.stop()


def drain(frame: DataFrame) -> None:
    """Reads every column of every row."""
    frame.write.format("noop").mode("overwrite").save()


def rate(messages: int, step: Callable[[], object]) -> int:
    """Returns messages per second: the median of three rounds after one that warms up."""
    seconds = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return round(messages / median(seconds[1:]))


def streamed(session: SparkSession, archive: Path, checkpoint: Path) -> None:
    stream = session.readStream.format("hourwheel").option("archive", str(archive)).option("subject", "orders").load()
    query = (
        stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    ).start()
    query.awaitTermination()


def reading(session: SparkSession, folder: Path, messages: int) -> dict[str, float]:
    archive, parquet = folder / "archive", folder / "parquet"
    make_archive(archive, messages)
    source = session.read.format("hourwheel").option("archive", str(archive)).option("subject", "orders")
    source.load().write.parquet(str(parquet))
    checkpoints = iter(range(ROUNDS + 1))
    return {
        "batch, all columns": rate(messages, lambda: drain(source.load())),
        "batch, key and body": rate(messages, lambda: drain(source.schema("key string, body string").load())),
        "stream": rate(messages, lambda: streamed(session, archive, folder / f"checkpoint-{next(checkpoints)}")),
        "native Parquet": rate(messages, lambda: drain(session.read.parquet(str(parquet)))),
    }


def writing(session: SparkSession, messages: int) -> dict[str, float]:
    frame = session.range(messages).selectExpr("rpad(cast(id as string), 100, '.') as body").repartition(2).cache()
    frame.count()
    with server() as url:
        sink = frame.write.format("hourwheel").mode("append").option("url", url).option("subject", "sent")
        return {"batch write": rate(messages, sink.save)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few messages, to see that it runs")
    quick = parser.parse_args().quick
    messages = SEGMENT_MESSAGES * (2 if quick else 25)
    with tempfile.TemporaryDirectory() as folder, spark() as session:
        metrics = {**reading(session, Path(folder), messages), **writing(session, 2_000 if quick else 100_000)}
    found = Table(title=f"{BODY_BYTES}-byte messages per second, 2 cores", title_justify="left")
    found.add_column("")
    found.add_column("messages/s", justify="right")
    for name, metric in metrics.items():
        found.add_row(name, f"{metric:,}")
    Console().print(found)
    print(json.dumps({"date": today(), "python": sys.version.split()[0], "cores": os.cpu_count(), **metrics}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
