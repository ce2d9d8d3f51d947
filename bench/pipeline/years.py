"""``python -m bench.pipeline.years [MANIFESTS] [LOGS]``: a year of an archiver that commits each minute.

Makes an archive with a segment in each manifest, and measures in processes of their own ``status``, which inspects all
of it, and the first batch of a stream that continues from a checkpoint. The last line is JSON. Manifests that are in
bundles have no objects of their own here: no reader looks for them.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.archive.segments import segment_key
from hourwheel.retention.bundles import EVERY, fold
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.manifests import Manifest, Segment, SegmentPart, Span, commit, sealed
from hourwheel.times import HOUR_MS, MINUTE_MS

YEAR = 525_600
LOGS = 60
START_MS = 1_735_689_600_000 // HOUR_MS * HOUR_MS
SEGMENT = b"x" * 300
_LINKS = 30_000  # fewer than a file system gives one file


class BundledBlobs(MemoryBlobs):
    """Keeps manifests in memory until they are folded, and writes bundles below a folder."""

    def __init__(self, folder: FileBlobs) -> None:
        super().__init__()
        self.folder = folder

    def put(self, key: str, data: bytes) -> None:
        if key.startswith("bundles/"):
            self.folder.put(key, data)
        super().put(key, data)


def manifest(number: int, previous: str, logs: int) -> Manifest:
    at_ms = START_MS + number * MINUTE_MS
    names = [f"subject-{log:03d}~1/0" for log in range(logs)]
    parts = [
        SegmentPart(log=name, start=number, end=number + 1, first=number, following=number + 1, messages=1)
        for name in names
    ]
    segment = Segment(
        key=segment_key(MESSAGES, at_ms // HOUR_MS * HOUR_MS, f"{number:028x}"),
        kind=MESSAGES,
        bytes=len(SEGMENT),
        checksum=0,
        rows=logs,
        messages=logs,
        earliest_ms=at_ms,
        latest_ms=at_ms,
        parts=parts,
    )
    spans = [Span(kind=MESSAGES, log=name, start=number, end=number + 1, messages=1, behind=0) for name in names]
    return Manifest(
        number=number,
        store="bench",
        previous=previous,
        began_ms=at_ms,
        ended_ms=at_ms,
        complete_ms=at_ms,
        segments=[segment],
        spans=spans,
        unreadable=[],
        missing=[],
    )


def build(root: Path, count: int, logs: int) -> None:
    folder = FileBlobs(root)
    blobs, previous, following = BundledBlobs(folder), "", 0
    source = root / "segment"
    for number in range(count):
        made = manifest(number, previous, logs)
        assert commit(blobs, made)
        previous = sealed(made).digest
        path = root / f"{made.segments[0].key}="
        if number % 60 == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
        if number % _LINKS == 0:
            source = path
            source.write_bytes(SEGMENT)
        else:
            os.link(source, path)
        if number % EVERY == EVERY - 1:
            while following <= number:
                following = fold(blobs, following)
            blobs = BundledBlobs(folder)
    for key in blobs.list("manifests/"):
        folder.put(key, blobs.get(key))


def status(archive: str) -> dict[str, float]:
    from hourwheel_pipeline.jobs.status import status_of

    began = time.perf_counter()
    found = status_of(archive, f"{archive}-lake")
    assert not found.inspection.count
    return {
        "manifests": found.archive.manifests,
        "segments": found.inspection.segments,
        "status_s": round(time.perf_counter() - began, 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024),
    }


def stream(archive: str) -> dict[str, float]:

    from hourwheel.retention.chain import end_of
    from pyspark_hourwheel.columns import SCHEMA
    from pyspark_hourwheel.options import StreamOptions, read_options
    from pyspark_hourwheel.stream import StreamReader

    end = end_of(FileBlobs(archive))
    options = read_options(StreamOptions, {"archive": archive, "subject": "subject-000"})
    reader = StreamReader(options, SCHEMA)
    began = time.perf_counter()
    start = {"manifest": end - 20, "segment_no": 0, "generation": 1, "since_ms": 0}
    slices = reader.partitions(start, reader.latestOffset(start))
    assert slices
    return {"stream_first_batch_s": round(time.perf_counter() - began, 2)}


def measured(part: str, archive: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.pipeline.years", "--part", part, str(archive)]
    began = time.perf_counter()
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found | {f"{part}_process_s": round(time.perf_counter() - began, 2)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("manifests", nargs="?", type=int, default=YEAR)
    parser.add_argument("logs", nargs="?", type=int, default=LOGS)
    parser.add_argument("--part", nargs=2, metavar=("PART", "ARCHIVE"), help="the part that runs by itself")
    options = parser.parse_args()
    if options.part:
        part, archive = options.part
        print(json.dumps({"status": status, "stream": stream}[part](archive)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "archive"
        build(archive, options.manifests, options.logs)
        print(json.dumps(measured("status", archive) | measured("stream", archive)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
