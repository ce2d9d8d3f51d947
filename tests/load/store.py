"""Meters a store in memory as DynamoDB does: latency, units by partition key and table, refused requests."""

from collections import Counter as Counts
from collections.abc import Callable, Sequence
from math import ceil
from typing import TypeVar

from bench.cost.meter import ITEM_OVERHEAD_BYTES, KEPT_DAYS, MONTH_DAYS, item_bytes, write_units
from bench.cost.prices import Usage
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.errors import Throttled
from hourwheel.ports.storage import Counter, Key, Record, Refused, Table
from tests.load.limits import spread, value
from tests.load.machine import Machine
from tests.load.throughput import READ, WRITE, Throughputs

T = TypeVar("T")

COUNTERS = "counters"
_READ_BYTES = int(value("read unit"))
_PAGE_BYTES = 1024 * 1024
_LATENCY = spread("store call, median", "store call, p99")


def record_bytes(key: Key, record: Record) -> int:
    """Returns the billed bytes of the item that ``adapters/aws/dynamodb.py`` makes of a record."""
    item: dict[str, dict[str, object]] = {
        "pk": {"S": key.partition},
        "sk": {"S": key.sort},
        "v": {"B": record.value},
        "t": {"B": record.token},
    }
    if record.expires_ms is not None:
        item |= {"e": {"N": str(record.expires_ms)}, "x": {"N": str(-(-record.expires_ms // 1_000))}}
    return item_bytes(item)


def _read_units(size: int, *, consistent: bool) -> float:
    return max(1, ceil(size / _READ_BYTES)) * (1.0 if consistent else 0.5)


class MeteredStore:
    """Implements ``Store`` for all processes of a run. A call takes effect when its latency is over; it then
    answers at once. Raises ``Throttled`` where ``adapters/aws/dynamodb.py`` would, whose client sends each request
    once: the retries are those of ``RetryingStore``. Nothing is late outside of a task, and nothing is counted
    there."""

    def __init__(self, machine: Machine, throughputs: Throughputs, usage: Usage) -> None:
        self._machine = machine
        self._throughputs = throughputs
        self._usage = usage
        self._rows = MemoryStore()
        self.units: dict[tuple[str, str], float] = {}
        """The units by table and kind."""
        self.calls: Counts[tuple[str, str]] = Counts()
        """The calls that were let through, by table and name."""
        self.lost: Counts[str] = Counts()
        """The conditional writes that were refused because another came first, by table."""

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        return self._count("add", counter, lambda: self._rows.add(counter, rows=rows, numbers=numbers))

    def begin(self, counter: str, *, numbers: int) -> Counter:
        return self._count("begin", counter, lambda: self._rows.begin(counter, numbers=numbers))

    def seal(self, counter: str) -> Counter:
        return self._count("seal", counter, lambda: self._rows.seal(counter))

    def counter(self, counter: str) -> Counter:
        self._let_through(COUNTERS, counter, READ)
        self._use("counter", COUNTERS, counter, READ, 1.0)
        return self._rows.counter(counter)

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        units = 1.0 if consistent else 0.5
        self._many("counters", COUNTERS, [(counter, units) for counter in counters])
        return self._rows.counters(counters)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        self._let_through(key.table, key.partition, READ)
        record = self._rows.get(key)
        size = 0 if record is None else record_bytes(key, record)
        self._use("get", key.table, key.partition, READ, _read_units(size, consistent=consistent))
        return record

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        found = self._rows.get_many(table, partition, sorts)
        sizes = {sort: record_bytes(Key(table, partition, sort), record) for sort, record in found.items()}
        wanted = [(partition, _read_units(sizes.get(sort, 0), consistent=consistent)) for sort in sorts]
        self._many("get_many", table, wanted)
        return self._rows.get_many(table, partition, sorts)

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        found = self._rows.get_keys(keys)
        sizes = {key: record_bytes(key, record) for key, record in found.items()}
        wanted = [(key.partition, _read_units(sizes.get(key, 0), consistent=consistent)) for key in keys]
        if keys:
            self._many("get_keys", keys[0].table, wanted)
        return self._rows.get_keys(keys)

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        self._let_through(key.table, key.partition, WRITE)
        before = self._rows.get(key)
        size = record_bytes(key, record)
        # A refused condition is billed as well, by the larger of the two items.
        units = write_units(max(size, 0 if before is None else record_bytes(key, before)))
        self._use("put", key.table, key.partition, WRITE, units)
        refused = self._rows.put(key, record, expect=expect)
        if refused is not None:
            self.lost[key.table] += 1
        elif before is None and self._machine.current is not None:
            kept = (size + ITEM_OVERHEAD_BYTES) / 1e9 * KEPT_DAYS[key.table] / MONTH_DAYS
            self._usage.update({"dynamodb-storage": kept, "dynamodb-backup": kept})
        return refused

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        self._let_through(key.table, key.partition, WRITE)
        before = self._rows.get(key)
        self._use(
            "delete", key.table, key.partition, WRITE, write_units(0 if before is None else record_bytes(key, before))
        )
        return self._rows.delete(key, expect=expect)

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        for sort in sorts:
            self._let_through(table, partition, WRITE)
            key = Key(table, partition, sort)
            before = self._rows.get(key)
            size = 0 if before is None else record_bytes(key, before)
            self._use("remove_many", table, partition, WRITE, write_units(size))
        self._rows.remove_many(table, partition, sorts)

    def scan(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        limit: int,
        reverse: bool = False,
        consistent: bool = True,
    ) -> list[tuple[str, Record]]:
        self._let_through(table, partition, READ)
        found = self._rows.scan(table, partition, start=start, limit=limit, reverse=reverse)
        size = sum(record_bytes(Key(table, partition, sort), record) for sort, record in found)
        for _ in range(size // _PAGE_BYTES):  # a page ends at 1 MB
            self._let_through(table, partition, READ)
        self._use("scan", table, partition, READ, _read_units(size, consistent=consistent))
        return found

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        """Does nothing, as on DynamoDB."""

    def collect(self, table: Table, now_ms: int) -> None:
        """Does nothing, as on DynamoDB."""

    def _count(self, name: str, counter: str, work: Callable[[], Counter]) -> Counter:
        self._let_through(COUNTERS, counter, WRITE)
        self._use(name, COUNTERS, counter, WRITE, 1.0)
        return work()

    def _many(self, name: str, table: str, wanted: Sequence[tuple[str, float]]) -> None:
        """Reads keys one by one, of which a request may leave some out. Requests those again, as the adapter does."""
        while wanted:
            self._late()
            if self._machine.current is None:
                return
            left = []
            for partition, units in wanted:
                if self._throughputs.admits(table, partition, READ):
                    self._use(name, table, partition, READ, units)
                else:
                    left.append((partition, units))
            if len(left) == len(wanted):
                raise Throttled(f"none of {len(left)} keys was read")
            wanted = left

    def _let_through(self, table: str, partition: str, kind: str) -> None:
        self._late()
        if self._machine.current is not None and not self._throughputs.admits(table, partition, kind):
            raise Throttled(f"{kind} of {table} {partition}")

    def _late(self) -> None:
        if self._machine.current is not None:
            self._machine.wait_for_call(self._machine.rng.lognormvariate(*_LATENCY))

    def _use(self, name: str, table: str, partition: str, kind: str, units: float) -> None:
        if self._machine.current is None:
            return
        self._throughputs.use(table, partition, kind, units)
        self.units[table, kind] = self.units.get((table, kind), 0.0) + units
        self.calls[table, name] += 1
        self._usage.update({"dynamodb-write" if kind == WRITE else "dynamodb-read": units})


class MeteredBlobs(MemoryBlobs):
    """Objects in memory that take the time and the requests of S3."""

    def __init__(self, machine: Machine, usage: Usage, put_ms: float, get_ms: float) -> None:
        super().__init__()
        self._machine = machine
        self._usage = usage
        self._put_ms = put_ms
        self._get_ms = get_ms

    def put(self, key: str, data: bytes) -> None:
        self._request("s3-put", self._put_ms)
        super().put(key, data)

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self._request("s3-get", self._get_ms)
        return super().get(key, offset=offset, length=length)

    def list(self, prefix: str) -> list[str]:
        self._request("s3-put", self._get_ms)
        return super().list(prefix)

    def _request(self, kind: str, ms: float) -> None:
        if self._machine.current is not None:
            self._usage[kind] += 1
            self._machine.wait(ms)
