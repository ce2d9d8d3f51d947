"""Compares the rows of a lake with those of its archive."""

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel.delay.ownership import Dispatched
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import CancelMarker, DueTimes, decode_drop_marker, encode_entry
from hourwheel.model.messages import Message
from hourwheel.pull_log.records import CLOSED, SETTLED, Position, PullRow
from hourwheel_pipeline.jobs import compact
from hourwheel_pipeline.jobs.compact import CompactOptions, CompactReport
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, PULLS, SCHEMAS
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.archives import ArchiveBuilder
from tests.unit.archive.reading import contents

NOON_MS = 1_763_640_000_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BUCKET = f"{NOON_MS:013d}-60/000"

IDENTITY = {
    MESSAGES: ("log", "row", "index", "kind"),
    PULLS: ("log", "pull_row"),
    DISPATCHES: ("bucket", "dispatch_row", "transfer", "source_row", "source_index"),
}


@dataclass
class Compacted:
    """An archive below ``root``, and the lake that is made of it."""

    root: Path
    spark: SparkSession
    builder: ArchiveBuilder = field(init=False)

    def __post_init__(self) -> None:
        self.builder = ArchiveBuilder(FileBlobs(self.root / "archive"))

    @property
    def lake(self) -> str:
        return str(self.root / "lake")

    def options(self, **given: Any) -> CompactOptions:
        return CompactOptions(archive=str(self.root / "archive"), lake=self.lake, **given)

    def compact(self, **given: Any) -> CompactReport:
        return compact.run(self.spark, self.options(**given))

    def rows(self, table: str = MESSAGES) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in self.frame(table).collect()]

    def frame(self, table: str) -> DataFrame:
        with closing(Lake.open(self.lake)) as lake:
            return lake.read(self.spark, table)

    def last_manifests(self) -> list[int]:
        with closing(Lake.open(self.lake)) as lake:
            return [lake.last_manifest(table) for table in SCHEMAS]

    def places(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """Returns the number of times that each table has each row."""
        return {
            table: Counter(tuple(row) for row in self.frame(table).select(*identity).collect())
            for table, identity in IDENTITY.items()
        }

    def archived(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """Returns the number of times that the archive has each row."""
        found = contents(self.builder.archive)
        messages = [(*place, _kind(place[0])) for place in found.messages]
        empty = [(log, row, entry.meta) for (log, row), entry in found.entries.items() if not entry.count]
        markers: list[tuple[Any, ...]] = [
            (log, row, 0, "cancel_marker") for log, row, meta in empty if meta and _kind(log) == "schedule"
        ]
        markers += [
            (log, row, index, "drop_marker")
            for log, row, meta in empty
            if meta and _kind(log) == "dead"
            for index, _ in enumerate(decode_drop_marker(meta).indexes)
        ]
        dispatches = [
            (bucket, row, place, *pick)
            for (bucket, row), dispatched in found.dispatches.items()
            for place, transfer in enumerate(dispatched.transfers)
            for pick in transfer.picks
        ]
        return {
            MESSAGES: Counter(messages + markers),
            PULLS: Counter(list(found.pulls)),
            DISPATCHES: Counter(dispatches),
        }

    def add(self, at_ms: int = NOON_MS, *, alter: Callable[[bytes], bytes] = bytes) -> None:
        """Adds a manifest with rows of every kind."""
        builder = self.builder
        for subject in ("orders", "bills"):
            row = builder.row(f"{subject}~1/0", [Message(body=f"{at_ms}-{at}", key="k") for at in range(3)], at_ms)
            builder.pull(f"g~1@{subject}~1/0", closed(row, at_ms))
        plan = encode_entry(DueTimes("orders", 1, None, at_ms + HOUR_MS))
        row = builder.row(f"schedule/{BUCKET}", [Message(body="later"), Message(body="never")], at_ms, note=plan)
        builder.row(f"schedule/{BUCKET}", [], at_ms, note=encode_entry(CancelMarker(row, 1)))
        due = Transfer(
            kind="due",
            log="orders~1/0",
            row_no=0,
            first_seq=0,
            token=b"",
            at_ms=at_ms,
            expires_ms=at_ms,
            picks=((row, 0),),
        )
        builder.dispatch(BUCKET, Dispatched(owner="o", at_ms=at_ms, transfers=(due,)))
        builder.commit(alter=alter)


def closed(row: int, at_ms: int) -> PullRow:
    return PullRow(
        consumer="c",
        first=Position(row),
        counts=(3,),
        end=Position(row + 1),
        end_seq=3 * row + 3,
        claim=b"",
        claimed_ms=at_ms,
        lease_until_ms=at_ms + 30_000,
        state=CLOSED,
        outcome=SETTLED,
        closed_ms=at_ms + 1_000,
    )


def _kind(log: str) -> str:
    if log.startswith("schedule/"):
        return "schedule"
    _, *rest = log.split("/")
    if rest == ["dead"]:
        return "orphan"
    return rest[0] if len(rest) == 2 else "queue"
