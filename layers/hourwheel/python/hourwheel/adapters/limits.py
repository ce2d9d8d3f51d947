"""Checks that every adapter makes before it sends or stores anything, as the ports promise. Each raises
``ValueError``."""

import re

from hourwheel.ports.storage import MAX_VALUE_BYTES, Record

# A path of parts. No part consists of dots alone, as "." and ".." would lead out of a folder.
_PART = r"(?!\.+(?:/|\Z))[A-Za-z0-9._-]+"
_BLOB_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def check_value(record: Record) -> None:
    if len(record.value) > MAX_VALUE_BYTES:
        raise ValueError(f"a value of {len(record.value)} bytes is over the limit of {MAX_VALUE_BYTES}")


def is_blob_key(key: str) -> bool:
    return _BLOB_KEY.fullmatch(key) is not None


def check_blob_key(key: str) -> None:
    if not is_blob_key(key):
        raise ValueError(f"not a blob key: {key!r}")


def check_range(offset: int, length: int | None) -> None:
    if offset < 0 or (length is not None and length < 0):
        raise ValueError(f"not a range: offset {offset}, length {length}")
