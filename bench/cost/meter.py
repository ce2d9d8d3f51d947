"""Counts the requests of the adapters to AWS, and the billed units of each."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from bench.cost.clock import ModelClock
from bench.cost.prices import Usage
from hourwheel.adapters.aws import dynamodb
from hourwheel.adapters.aws.sqs import THREADS
from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.model.pulls import WakeupQueue

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

T = TypeVar("T")

DYNAMODB_SECONDS = 0.005
S3_PUT_SECONDS = 0.025
S3_GET_SECONDS = 0.015
TIMER_SECONDS = 0.02
SQS_SECONDS = 0.01
"""The round-trip seconds of requests, one after the other, as the library makes them."""

ITEM_OVERHEAD_BYTES = 100
"""The bytes that DynamoDB bills for each item in addition to its content."""

KEPT_DAYS = {"consume": 5.0, "pull": 4.0, "schedule": 2.0, "dispatch": 2.0, "keys": 1.0, "meta": 0.0, "counters": 0.0}
"""The days for which a new item of a table is stored: three days of retention and the time of the table's clean-up;
for delayed messages, from the end of their hour on. The other tables have few items."""

SEGMENT_DAYS = 5.0

MONTH_DAYS = 365 / 12

READS = frozenset({"GetItem", "BatchGetItem", "Query"})
_COUNTED = READS | {"PutItem", "UpdateItem", "DeleteItem"}


@dataclass
class Meter:
    """Counts the usage. ``usage``: the billed units; ``requests`` and ``units``: those of DynamoDB, by (operation,
    table)."""

    clock: ModelClock = field(default_factory=ModelClock)
    usage: Usage = field(default_factory=Counter)
    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    units: Counter[tuple[str, str]] = field(default_factory=Counter)

    def clear(self) -> None:
        self.usage.clear()
        self.requests.clear()
        self.units.clear()

    def stored(self, kind: str, size: int, days: float) -> None:
        self.usage.update({kind: size / 1e9 * days / MONTH_DAYS})

    def dynamodb(self, operation: str, table: str, units: float) -> None:
        kind = "dynamodb-read" if operation in READS else "dynamodb-write"
        self.usage.update({kind: units})
        self.requests[operation, table] += 1
        self.units.update({(operation, table): units})


def metered_client(endpoint: str, meter: Meter) -> "DynamoDBClient":
    """Returns the library's own client, with counted requests. DynamoDB bills a refused condition by the size of the
    item. The engine reports neither the capacity nor the item then: a further read gets the item, and is not
    counted."""
    client = dynamodb.client(region="us-east-1", endpoint_url=endpoint)
    counting = True

    def ask_for_capacity(params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> dict[str, Any]:
        if counting and model.name in _COUNTED:
            params = {**params, "ReturnConsumedCapacity": "TOTAL"}
            params.pop("ReturnValuesOnConditionCheckFailure", None)
            context["asked"] = params
        return params

    def count(parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        if not counting or model.name not in _COUNTED:
            return
        asked = context["asked"]
        meter.clock.wait(DYNAMODB_SECONDS)
        if model.name == "BatchGetItem":
            for table, units in _of_many(asked, parsed):
                meter.dynamodb(model.name, table, units)
        elif parsed.get("Error", {}).get("Code") == "ConditionalCheckFailedException":
            meter.dynamodb(model.name, _table(asked), _refused(asked, parsed))
        else:
            meter.dynamodb(model.name, _table(asked), _consumed(asked, parsed))
            _store(meter, asked)

    def _refused(asked: Mapping[str, Any], parsed: dict[str, Any]) -> float:
        nonlocal counting
        item = asked.get("Item", {})
        key = asked.get("Key") or {name: item[name] for name in ("pk", "sk")}
        counting = False
        current = client.get_item(TableName=asked["TableName"], Key=key, ConsistentRead=True).get("Item")
        counting = True
        if current is not None:
            parsed["Item"] = current
        return write_units(max(item_bytes(item), item_bytes(current or {})))

    client.meta.events.register("provide-client-params.dynamodb", ask_for_capacity)
    client.meta.events.register("after-call.dynamodb", count)
    # The engine has no time to live.
    done = SimpleNamespace(status_code=200), {"ResponseMetadata": {"HTTPStatusCode": 200}}
    client.meta.events.register("before-call.dynamodb.UpdateTimeToLive", lambda **_: done)
    return client


def _table(asked: Mapping[str, Any]) -> str:
    return str(asked["TableName"].rpartition("-")[2])


def _consumed(asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> float:
    # A query that finds nothing is billed like one that finds one item.
    return float(parsed["ConsumedCapacity"]["CapacityUnits"] or (1.0 if asked.get("ConsistentRead") else 0.5))


def _store(meter: Meter, asked: Mapping[str, Any]) -> None:
    """Counts the storage of an item that was put under a new key."""
    if "attribute_not_exists(pk)" in asked.get("ConditionExpression", ""):
        size = item_bytes(asked["Item"]) + ITEM_OVERHEAD_BYTES
        for kind in ("dynamodb-storage", "dynamodb-backup"):
            meter.stored(kind, size, KEPT_DAYS[_table(asked)])


def _of_many(asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Returns the table and the units of each request for many keys. Each key is billed by itself, a missing item like
    a small one."""
    for name, request in asked["RequestItems"].items():
        share = 1.0 if request.get("ConsistentRead") else 0.5
        items = parsed["Responses"].get(name, [])
        left = len(parsed["UnprocessedKeys"].get(name, {}).get("Keys", []))
        units = sum(max(1, ceil(item_bytes(item) / 4_096)) for item in items)
        yield name.rpartition("-")[2], share * (units + len(request["Keys"]) - left - len(items))


def write_units(size: int) -> int:
    return max(1, ceil(size / 1_024))


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Returns the billed bytes of an item: names and values."""
    return sum(len(name) + _bytes(*value.items()) for name, value in item.items())


def _bytes(entry: tuple[str, Any]) -> int:
    kind, value = entry
    if kind == "S":
        return len(value.encode())
    if kind == "B":
        return len(value)
    if kind == "N":
        return ceil(len(value) / 2) + 1
    return 1


class CountedBlobs(MemoryBlobs):
    """Blobs in memory whose requests count as those of S3."""

    def __init__(self, meter: Meter, kept_days: float = SEGMENT_DAYS) -> None:
        super().__init__()
        self._meter = meter
        self._kept_days = kept_days

    def put(self, key: str, data: bytes) -> None:
        self._count("s3-put", S3_PUT_SECONDS)
        self._meter.stored("s3-storage", len(data), self._kept_days)
        super().put(key, data)

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self._count("s3-get", S3_GET_SECONDS)
        return super().get(key, offset=offset, length=length)

    def list(self, prefix: str) -> list[str]:
        self._count("s3-put", S3_GET_SECONDS)
        return super().list(prefix)

    def _count(self, kind: str, seconds: float) -> None:
        self._meter.usage[kind] += 1
        self._meter.clock.wait(seconds)


class CountedTimers:
    """Timers that a driver fires; ``ordered`` are (time, bucket). A timer for now counts as an invocation, a later one
    as a schedule."""

    SOON_MS = 5_000

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.ordered: list[tuple[int, str]] = []

    def at(self, when_ms: int, bucket: str) -> None:
        self._meter.clock.wait(TIMER_SECONDS)
        if when_ms > self._meter.clock.now_ms() + self.SOON_MS:
            if (when_ms, bucket) in self.ordered:
                return  # a schedule of this name exists already
            self._meter.usage["schedule-firing"] += 1
        self.ordered.append((when_ms, bucket))


class CountedQueues:
    """``WakeupQueues`` that count their requests. Their consumers receive at once."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._made: set[str] = set()
        self._waits = True
        self.wakeups = 0

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        if fresh or name not in self._made:
            self._made.add(name)
            self._count()
        return WakeupQueue(name, "us-east-1")

    def wake(self, name: str) -> bool:
        self._count()
        self.wakeups += 1
        return name in self._made

    def remove(self, name: str) -> None:
        self._count()
        self._made.discard(name)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        self._waits = False
        results = [call() for call in calls]
        self._waits = True
        self._meter.clock.wait(SQS_SECONDS * ceil(len(calls) / THREADS))
        return results

    def _count(self) -> None:
        self._meter.usage["sqs-request"] += 1
        if self._waits:
            self._meter.clock.wait(SQS_SECONDS)


RELAY_LATE_MS = 30_000
"""The lateness of a schedule that relays: half of the minute within which Scheduler fires."""

QUEUE_LATE_MS = 100
"""The time from which a delayed message is visible until it starts the function."""


class CountedPreciseTimers:
    """Precise timers that a driver fires; ``ordered`` are (time, event of the function wheel). Reading the queue is a
    fixed cost a month, and is not counted here: the sending, receiving and deleting of messages is."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.ordered: list[tuple[int, dict[str, Any]]] = []

    def after(self, seconds: int, bucket: str, wakes_ms: int) -> None:
        self._meter.clock.wait(TIMER_SECONDS)
        self._meter.usage["sqs-request"] += 3
        body = json.dumps({"bucket": bucket, "wakes_ms": wakes_ms})
        visible_ms = self._meter.clock.now_ms() + seconds * 1_000 + QUEUE_LATE_MS
        self.ordered.append((visible_ms, {"Records": [{"messageId": "m-1", "body": body}]}))

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        self._meter.clock.wait(TIMER_SECONDS)
        self._meter.usage["schedule-firing"] += 1
        self.ordered.append((when_ms + RELAY_LATE_MS, {"bucket": bucket, "wakes_ms": wakes_ms}))

    def listen(self, on: bool) -> bool:
        return on
