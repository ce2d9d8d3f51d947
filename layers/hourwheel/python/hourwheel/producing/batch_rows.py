"""Completes the rows of a batch's parts for the logs that store them."""

import msgspec

from hourwheel.logs.rows import Row
from hourwheel.logs.tags import with_tags
from hourwheel.producing.routing import BatchPart


def row_of(part: BatchPart, row: Row, at_ms: int, prefix: str, spare_bytes: int) -> Row:
    """Returns the row as the part's log stores it: with the expiry of a queue, the prefix of ids and a summary of the
    tags, or with the due times of a bucket."""
    if part.bucket is not None:
        return msgspec.structs.replace(row, expires_ms=0, meta=part.meta)
    expires_ms = at_ms + part.subject.retention_ms
    if row.expires_ms != expires_ms or prefix:
        row = msgspec.structs.replace(row, expires_ms=expires_ms, prefix=prefix)
    return with_tags(row, part.log, part.messages, spare_bytes)
