"""Makes archives for measurements."""

import base64
import json
import random
import zlib
from collections.abc import Iterator
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.archive.blocks import Entry, encode_messages
from hourwheel.archive.segments import join, segment_key
from hourwheel.model.messages import Message
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.manifests import Manifest, Segment, SegmentPart, Span, commit, sealed
from hourwheel.times import HOUR_MS

BODY_BYTES = 100
BATCH = 100
BLOCK_ROWS = 60
START_MS = 1_763_640_000_000 // HOUR_MS * HOUR_MS
QUEUES = 4
SUBJECTS = ("orders", "orders", "orders", "bills", "mail")
"""One of them has most of the messages."""


def messages(count: int) -> Iterator[Message]:
    """Returns bodies, half of each noise that does not compress."""
    noise = random.Random(1)
    for number in range(count):
        text = json.dumps({"order": number, "customer": f"c-{number % 977}", "note": ""})
        filler = base64.b64encode(noise.randbytes(BODY_BYTES)).decode()
        body = text[:-2] + filler[: BODY_BYTES - len(text)] + text[-2:]
        yield Message(body=body, id=f"{number:028x}", key=f"c-{number % 977}")


def build(folder: Path, count: int, segments: int, manifests: int = 1) -> None:
    """Writes an archive of this many messages, in batches of 100, spread over segments and hours of a day."""
    archive, source = FileBlobs(folder), messages(count)
    rows: dict[str, int] = dict.fromkeys((f"{name}~1/{queue}" for name in SUBJECTS for queue in range(QUEUES)), 0)
    batches = count // BATCH // segments
    previous = ""
    for number in range(manifests):
        named = [
            _segment(archive, source, batches, rows, index)
            for index in range(number * segments // manifests, (number + 1) * segments // manifests)
        ]
        manifest = Manifest(
            number=number,
            store="bench",
            previous=previous,
            began_ms=START_MS,
            ended_ms=START_MS,
            complete_ms=0,
            segments=named,
            spans=[Span(kind=MESSAGES, log=log, start=0, end=end, messages=0, behind=0) for log, end in rows.items()],
            unreadable=[],
            missing=[],
        )
        assert commit(archive, manifest)
        previous = sealed(manifest).digest


def _segment(archive: FileBlobs, source: Iterator[Message], batches: int, rows: dict[str, int], index: int) -> Segment:
    hour_ms = START_MS + index % 10 * HOUR_MS
    logs = [f"{SUBJECTS[at % len(SUBJECTS)]}~1/{at // len(SUBJECTS) % QUEUES}" for at in range(batches)]
    blocks = []
    for start in range(0, batches, BLOCK_ROWS):
        names = logs[start : start + BLOCK_ROWS]
        known = list(dict.fromkeys(names))
        entries = []
        for name in names:
            row = rows[name]
            rows[name] += 1
            entries.append(Entry(known.index(name), row, row * BATCH, BATCH, BATCH, hour_ms + row, hour_ms * 2))
        held = [next(source) for _ in range(len(names) * BATCH)]
        blocks.append(encode_messages(known, entries, held))
    data = join(MESSAGES, blocks)
    key = segment_key(MESSAGES, hour_ms, f"{index:06d}")
    archive.put(key, data)
    return Segment(
        key=key,
        kind=MESSAGES,
        bytes=len(data),
        checksum=zlib.crc32(data),
        rows=batches,
        messages=batches * BATCH,
        earliest_ms=hour_ms,
        latest_ms=hour_ms + HOUR_MS - 1,
        parts=[SegmentPart(log=log, start=0, end=0, first=0, following=0, messages=0) for log in dict.fromkeys(logs)],
    )
