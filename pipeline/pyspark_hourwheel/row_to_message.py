"""Makes messages to send from rows. A row has some of these columns, and always a body:

body        string                        or body_bytes, the one that is not null
body_bytes  binary
key         string
tags        array<string>
headers     map<string,string>
id          string
deliver_at  timestamp                     or delay, the one that is not null
delay       string, or any number         "90d", or seconds
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.types import DataType, NumericType, StructType

from hourwheel.client import Message

_TYPES = {
    "body": "string",
    "body_bytes": "binary",
    "key": "string",
    "tags": "array<string>",
    "headers": "map<string,string>",
    "id": "string",
    "deliver_at": "timestamp",
    "delay": "string",
}


def check_columns(schema: StructType) -> None:
    """Raises ``ValueError`` if a column is not part of a message or has another type, or if there is no body."""
    names = schema.fieldNames()
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise ValueError(
            f"format hourwheel: a message has no {', '.join(unknown)}: select only columns of a message,"
            f" of {', '.join(_TYPES)}"
        )
    for field in schema.fields:
        if not _fits(field.name, field.dataType):
            raise ValueError(
                f"format hourwheel: column {field.name} is {field.dataType.simpleString()}, cast it to"
                f" {_TYPES[field.name]}"
            )
    if not {"body", "body_bytes"} & set(names):
        raise ValueError("format hourwheel: a message needs a body: give a column body (string) or body_bytes (binary)")


def _fits(name: str, kind: DataType) -> bool:
    return kind.simpleString() == _TYPES[name] or (name == "delay" and isinstance(kind, NumericType))


def message_of(row: Mapping[str, Any]) -> Message:
    """Returns the message that a row describes. Raises ``ValueError`` if the row has no body, or two bodies."""
    text, data = row.get("body"), row.get("body_bytes")
    if (text is None) is (data is None):
        raise ValueError("a message needs exactly one of body and body_bytes, and the other must be null")
    deliver_at, delay = row.get("deliver_at"), row.get("delay")
    return Message(
        text if text is not None else bytes(data or b""),
        key=row.get("key"),
        tags=row.get("tags"),
        headers=row.get("headers"),
        id=row.get("id"),
        delay=float(delay) if isinstance(delay, Decimal) else delay,
        deliver_at=None if deliver_at is None else _moment(deliver_at),
    )


def _moment(local: datetime) -> datetime:
    """Returns the time in UTC of a time that Spark passes as the local time of the worker. In an hour that occurs twice
    it takes the later one, because no message may come early."""
    return max(local.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
