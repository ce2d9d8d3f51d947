"""Implements the store on DynamoDB.

{prefix}-meta, -consume, -pull, -keys,                 {prefix}-counters
         -schedule, -dispatch
pk  S  Key.partition                                   pk       S     name of the counter
sk  S  Key.sort                                        rows     N     given out
v   B  Record.value                                    numbers  N     given out
t   B  Record.token                                    sealed   BOOL  true, or absent
e   N  Record.expires_ms, or absent
x   N  Record.expires_ms in whole seconds, rounded up: the TTL attribute
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast
from zlib import crc32

from botocore.config import Config
from botocore.exceptions import ChecksumError, ClientError

from hourwheel.adapters.aws.clients import make_client
from hourwheel.adapters.aws.errors import error_code, translating
from hourwheel.adapters.limits import check_value
from hourwheel.errors import Corrupt, Sealed, Throttled
from hourwheel.ports.storage import Counter, Key, Record, Refused, Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import PutItemInputTypeDef, QueryInputTypeDef

P = ParamSpec("P")
R = TypeVar("R")
Item = Mapping[str, Any]

# Short, so that ``retrying.py`` can repeat a call without an answer within its budget of 5 s.
CONNECT_SECONDS = 1.0
READ_SECONDS = 2.0
COUNTERS = "counters"
_KEPT_TOTALS = "#rows = if_not_exists(#rows, :rows), #numbers = if_not_exists(#numbers, :numbers)"


def client(*, region: str | None = None, endpoint_url: str | None = None, pool_size: int = 32) -> "DynamoDBClient":
    """Makes a client that sends each request once. ``region`` and ``endpoint_url`` default to those of the environment.
    ``pool_size`` threads may use the client at the same time without opening further connections."""
    config = Config(
        # After a lost answer the SDK's own retries would add twice, and would report a conditional put that has won as
        # refused. ``retrying.py`` repeats calls instead; their callers recognise their own writes by the token.
        retries={"mode": "standard", "total_max_attempts": 1},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=pool_size,
    )
    opened = make_client("dynamodb", config, region=region, endpoint_url=endpoint_url)
    opened.meta.events.register("before-parse.dynamodb", _check_complete)
    return cast("DynamoDBClient", opened)


def _check_complete(response_dict: Mapping[str, Any], **_: Any) -> None:
    """Raises ``ChecksumError`` for an answer that was cut off. botocore would read it as an empty answer, so that a key
    would seem empty."""
    expected = response_dict["headers"].get("x-amz-crc32")
    actual = crc32(response_dict["body"])
    if expected is not None and int(expected) != actual:
        raise ChecksumError(checksum_type="crc32", expected_checksum=expected, actual_checksum=str(actual))


def create_tables(client: "DynamoDBClient", prefix: str) -> None:
    """Creates the tables and waits until they can be used. For tests and local work: deployments declare their
    tables."""
    with translating():
        for name in (*Table, COUNTERS):
            sorted_by = [] if name == COUNTERS else ["sk"]
            client.create_table(
                TableName=f"{prefix}-{name}",
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", *sorted_by)],
                KeySchema=[
                    {"AttributeName": "pk", "KeyType": "HASH"},
                    *({"AttributeName": key, "KeyType": "RANGE"} for key in sorted_by),  # type: ignore[list-item]  # the stubs want literals
                ],
            )
        for name in (*Table, COUNTERS):
            client.get_waiter("table_exists").wait(TableName=f"{prefix}-{name}", WaiterConfig={"Delay": 1})
        for table in Table:
            client.update_time_to_live(
                TableName=f"{prefix}-{table}", TimeToLiveSpecification={"Enabled": True, "AttributeName": "x"}
            )


class DynamoStore:
    """Implements ``Store`` on the tables whose names begin with ``prefix``. Every call sends one request (``scan`` and
    reads of many keys may send several), and none is repeated here. Reads with ``consistent=False`` cost half."""

    def __init__(self, client: "DynamoDBClient", *, prefix: str) -> None:
        self._client = client
        self._tables = {table: f"{prefix}-{table}" for table in Table}
        self._counters = f"{prefix}-{COUNTERS}"

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        not_sealed = "attribute_not_exists(#sealed)"  # the end of a sealed log is fixed: no number follows it
        answer = _ask_conditionally(
            self._client.update_item,
            TableName=self._counters,
            Key={"pk": {"S": counter}},
            UpdateExpression="ADD #rows :rows, #numbers :numbers",
            ConditionExpression=not_sealed,
            ExpressionAttributeNames={"#rows": "rows", "#numbers": "numbers", "#sealed": "sealed"},
            ExpressionAttributeValues={":rows": {"N": str(rows)}, ":numbers": {"N": str(numbers)}},
            ReturnValues="ALL_NEW",
        )
        if isinstance(answer, Refused):
            raise Sealed(counter)
        return _counter(answer["Attributes"])

    def begin(self, counter: str, *, numbers: int) -> Counter:
        answer = _ask(
            self._client.update_item,
            TableName=self._counters,
            Key={"pk": {"S": counter}},
            UpdateExpression=f"SET {_KEPT_TOTALS}",  # no condition: beginning twice has no further effect
            ExpressionAttributeNames={"#rows": "rows", "#numbers": "numbers"},
            ExpressionAttributeValues={":rows": {"N": "0"}, ":numbers": {"N": str(numbers)}},
            ReturnValues="ALL_NEW",
        )
        return _counter(answer["Attributes"])

    def seal(self, counter: str) -> Counter:
        answer = _ask(
            self._client.update_item,
            TableName=self._counters,
            Key={"pk": {"S": counter}},
            # No condition: sealing twice has no further effect. The totals are stored, so that nothing begins later.
            UpdateExpression=f"SET #sealed = :true, {_KEPT_TOTALS}",
            ExpressionAttributeNames={"#sealed": "sealed", "#rows": "rows", "#numbers": "numbers"},
            ExpressionAttributeValues={":true": {"BOOL": True}, ":rows": {"N": "0"}, ":numbers": {"N": "0"}},
            ReturnValues="ALL_NEW",
        )
        return _counter(answer["Attributes"])

    def counter(self, counter: str) -> Counter:
        answer = _ask(self._client.get_item, TableName=self._counters, Key={"pk": {"S": counter}}, ConsistentRead=True)
        return _counter(answer.get("Item", {}))

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        items = self._batch(self._counters, [{"pk": {"S": counter}} for counter in counters], consistent=consistent)
        return dict.fromkeys(counters, Counter(0, 0)) | {item["pk"]["S"]: _counter(item) for item in items}

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        answer = _ask(
            self._client.get_item,
            TableName=self._tables[key.table],
            Key={"pk": {"S": key.partition}, "sk": {"S": key.sort}},
            ConsistentRead=consistent,
        )
        item = answer.get("Item")
        return _record(item) if item else None

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        keys = [{"pk": {"S": partition}, "sk": {"S": sort}} for sort in sorts]
        return {
            item["sk"]["S"]: _record(item) for item in self._batch(self._tables[table], keys, consistent=consistent)
        }

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        table = keys[0].table if keys else Table.META
        asked = [{"pk": {"S": key.partition}, "sk": {"S": key.sort}} for key in keys]
        items = self._batch(self._tables[table], asked, consistent=consistent)
        return {Key(table, item["pk"]["S"], item["sk"]["S"]): _record(item) for item in items}

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        check_value(record)
        # A row is written once: a second writer must not replace it.
        still_empty = "attribute_not_exists(pk)"
        # The write that the caller has read is still the last one: no other write is lost.
        still_the_write_seen = "t = :expect"
        write: PutItemInputTypeDef = {
            "TableName": self._tables[key.table],
            "Item": _item(key, record),
            "ConditionExpression": still_empty,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
        if expect is not None:
            write["ConditionExpression"] = still_the_write_seen
            write["ExpressionAttributeValues"] = {":expect": {"B": expect}}
        answer = _ask_conditionally(self._client.put_item, **write)
        return answer if isinstance(answer, Refused) else None

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        still_the_write_seen = "t = :expect"  # the caller must not remove a newer write, which it has not read
        answer = _ask_conditionally(
            self._client.delete_item,
            TableName=self._tables[key.table],
            Key={"pk": {"S": key.partition}, "sk": {"S": key.sort}},
            ConditionExpression=still_the_write_seen,
            ExpressionAttributeValues={":expect": {"B": expect}},
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
        return answer if isinstance(answer, Refused) else None

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        name = self._tables[table]
        requests: Any = [{"DeleteRequest": {"Key": {"pk": {"S": partition}, "sk": {"S": sort}}}} for sort in sorts]
        while requests:
            answer: Any = _ask(self._client.batch_write_item, RequestItems={name: requests})
            # DynamoDB leaves out what is beyond the throughput of a partition.
            left = answer["UnprocessedItems"].get(name, [])
            if len(left) == len(requests):
                raise Throttled(f"none of {len(left)} items was removed")
            requests = left

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
        query: QueryInputTypeDef = {
            "TableName": self._tables[table],
            "KeyConditionExpression": "pk = :partition",
            "ExpressionAttributeValues": {":partition": {"S": partition}},
            "ScanIndexForward": not reverse,
            "ConsistentRead": consistent,
        }
        if start:  # DynamoDB refuses an empty key, even as a bound
            query["KeyConditionExpression"] = "pk = :partition AND sk >= :start"
            query["ExpressionAttributeValues"] = {":partition": {"S": partition}, ":start": {"S": start}}
        items: list[tuple[str, Record]] = []
        while len(items) < limit:  # a page ends at 1 MB, whatever the limit
            query["Limit"] = limit - len(items)
            answer = _ask(self._client.query, **query)
            items.extend((item["sk"]["S"], _record(item)) for item in answer["Items"])
            if "LastEvaluatedKey" not in answer:
                break
            query["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
        return items

    def _batch(self, table: str, keys: "Sequence[Item]", *, consistent: bool) -> list[Item]:
        """Returns the items that exist under these keys. Requests keys that DynamoDB left out again, as long as each
        answer reads some of them; raises ``Throttled`` after an answer that reads none."""
        items: list[Item] = []
        while keys:
            request: Any = {table: {"Keys": keys, "ConsistentRead": consistent}}
            answer: Any = _ask(self._client.batch_get_item, RequestItems=request)
            items += answer["Responses"].get(table, [])
            # DynamoDB leaves out keys beyond 16 MB of items, or beyond the throughput of a partition.
            left = answer["UnprocessedKeys"].get(table, {}).get("Keys", [])
            if len(left) == len(keys):
                raise Throttled(f"none of {len(left)} keys was read")
            keys = left
        return items

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        """Does nothing: TTL removes the items at no cost."""

    def collect(self, table: Table, now_ms: int) -> None:
        """Does nothing: TTL removes expired items at no cost."""


def _ask(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Sends one request; raises the library's errors in place of botocore's."""
    with translating():
        return call(*args, **kwargs)


def _ask_conditionally(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | Refused:
    """Sends one request with a condition. Returns ``Refused``, with the item of the answer, when the condition did not
    hold."""
    with translating():
        try:
            return call(*args, **kwargs)
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            item: Any = error.response.get("Item")
            return Refused(_record(item) if item else None)


def _item(key: Key, record: Record) -> dict[str, Any]:
    item: dict[str, Any] = {
        "pk": {"S": key.partition},
        "sk": {"S": key.sort},
        "v": {"B": record.value},
        "t": {"B": record.token},
    }
    if record.expires_ms is not None:
        item["e"] = {"N": str(record.expires_ms)}
        item["x"] = {"N": str(-(-record.expires_ms // 1000))}  # rounded up: TTL must not remove the item early
    return item


def _record(item: Item) -> Record:
    try:
        expires = item.get("e")
        return Record(
            value=item["v"]["B"], token=item["t"]["B"], expires_ms=int(expires["N"]) if expires is not None else None
        )
    except (KeyError, ValueError) as error:
        raise Corrupt(f"item {item.get('pk')} {item.get('sk')} is not a record: {error!r}") from error


def _counter(item: Item) -> Counter:
    return Counter(
        rows=int(item.get("rows", {"N": "0"})["N"]),
        numbers=int(item.get("numbers", {"N": "0"})["N"]),
        sealed="sealed" in item,
    )
