"""``python -m bench.pipeline``: prints medians of one run. The last line is JSON."""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bench.__main__ import table
from bench.measures import median, today
from bench.pipeline.archives import build
from bench.pipeline.growth import growth
from hourwheel.archive.reading import read_segment
from hourwheel_pipeline.archive_rows.arrow import batches
from hourwheel_pipeline.archive_rows.reading import Work, manifests_from
from hourwheel_pipeline.archive_rows.segment_rows import ArchiveLocation, segment_rows
from hourwheel_pipeline.jobs import compact
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.schemas import BOUNDED, MESSAGES, SCHEMAS, SORTED_BY
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.lake.writing import share_of, write

CORES = 2
ROUNDS = 3


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # otherwise the workers run the first python3 on the path
    opened = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    opened.sparkContext.setLogLevel("ERROR")
    return opened


def works_of(archive: Path) -> list[Work]:
    manifests = manifests_from(blobs_at(str(archive)), 0)
    return [Work.of(one.number, segment) for one in manifests for segment in one.segments]


def to_arrow(archive: Path) -> dict[str, float]:
    """Returns the messages per second from which one core builds columns."""
    blobs, works = blobs_at(str(archive)), works_of(archive)
    rates = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        rows = sum(
            batch.num_rows for work in works for batch in batches(MESSAGES, read_segment(blobs, work), work.manifest)
        )
        rates.append(rows / (time.perf_counter() - began))
    return {"messages_per_s_and_core": round(median(rates))}


def compacting(spark: SparkSession, archive: Path, root: Path, count: int) -> dict[str, float]:
    """Returns the rows per second of the job, and of a job that reads the same rows from Parquet, in turns."""
    parquet = root / "parquet"
    segment_rows(spark, ArchiveLocation(str(archive)), MESSAGES, works_of(archive)).write.parquet(str(parquet))
    ours, native = [], []
    for number in range(ROUNDS + 1):
        lakes = root / f"lake-{number}", root / f"native-{number}"
        began = time.perf_counter()
        compact.run(spark, compact.CompactOptions(archive=str(archive), lake=str(lakes[0])))
        between = time.perf_counter()
        from_parquet(spark, parquet, lakes[1])
        ended = time.perf_counter()
        ours.append(count / (between - began))
        native.append(count / (ended - between))
        for lake in lakes:
            shutil.rmtree(lake)
    # The first round warms the JVM up, and does not count.
    return {
        "compact_rows_per_s": round(median(ours[1:])),
        "native_parquet_rows_per_s": round(median(native[1:])),
        "compact_of_native": round(median([a / b for a, b in zip(ours[1:], native[1:], strict=True)]), 3),
    }


def from_parquet(spark: SparkSession, parquet: Path, location: Path) -> None:
    with closing(Lake.open(str(location))) as lake:
        lake.ensure(MESSAGES, SCHEMAS[MESSAGES], sorted_by=SORTED_BY[MESSAGES], bounded=BOUNDED[MESSAGES])
        size = sum(file.stat().st_size for file in parquet.glob("*.parquet"))
        folder = lake.folder(MESSAGES, "run")
        rows = spark.read.parquet(str(parquet))
        write(rows, folder, SORTED_BY[MESSAGES], task_bytes=share_of(spark, size), size=size)
        lake.commit(MESSAGES, added=[file.path for file in lake.written(folder)])


def driver(root: Path, count: int, segments: int) -> dict[str, float]:
    """Measures in a process of its own: equal messages in this many segments, with a tenth as many manifests."""
    archive = root / f"segments-{segments}"
    build(archive, count, segments, max(1, segments // 10))
    arguments = [sys.executable, "-m", "bench.pipeline", "--driver", str(archive), str(root / f"lake-of-{segments}")]
    answer = subprocess.run(arguments, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


def driven(archive: str, lake: str) -> dict[str, float]:
    spark = session()
    spark.range(10).count()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    compact.run(spark, compact.CompactOptions(archive=archive, lake=lake))
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return {
        "run_s": round(seconds, 2),
        "driver_cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "driver_peak_mb": round(after.ru_maxrss / 1_024),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few messages: does it run at all?")
    parser.add_argument("--driver", nargs=2, metavar=("ARCHIVE", "LAKE"), help="the part that runs by itself")
    options = parser.parse_args()
    if options.driver:
        print(json.dumps(driven(*options.driver)))
        return 0
    count = 100_000 if options.quick else 2_000_000
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        build(root / "archive", count, 100)
        arrow = to_arrow(root / "archive")
        console.print(table("segments to Arrow, 100-byte messages", {"": arrow}))
        spark = session()
        speed = compacting(spark, root / "archive", root, count)
        sizes = (
            {"subjects": 5, "days": 4, "messages": 10, "rounds": 1}
            if options.quick
            else {"subjects": 100, "days": 4, "messages": 250, "rounds": ROUNDS}
        )
        growing = growth(spark, root / "growth", **sizes)
        spark.stop()
        console.print(table(f"compact on {CORES} cores, beside the same job from Parquet", {"": speed}))
        titles = f"{sizes['subjects']} subjects, {sizes['days']} days, {sizes['messages']} messages each"
        console.print(table(f"runs of jobs, {titles}", growing))
        driving = {f"{segments:,} segments": driver(root, count // 5, segments) for segments in (2, 200, 2_000)}
        console.print(table(f"the driver, {count // 5:,} messages", driving))
    print(json.dumps({"date": today(), "arrow": arrow, "compact": speed, "jobs": growing, "driver": driving}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
