"""Reserves rows for the parts of a batch."""

from collections.abc import Sequence
from typing import NamedTuple

from hourwheel.buckets.buckets import reserve_in
from hourwheel.context import Context
from hourwheel.errors import Sealed
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.producing.routing import BatchPart
from hourwheel.producing.stored_batches import check_current


class PartRow(NamedTuple):
    """A part of a batch, its row, and the reservation of the row; None before a row is reserved."""

    part: BatchPart
    row: Row
    reservation: Reservation | None = None


def reserve(context: Context, parts: Sequence[BatchPart], rows: Sequence[Row]) -> list[Reservation]:
    """Reserves a row for each part. Raises ``Sealed`` if one of the logs takes no more rows; abandons the rows that it
    has reserved in the others, so that no reader waits for them."""
    check_current(context, parts)
    reserved: list[Reservation] = []
    try:
        for part, row in zip(parts, rows, strict=True):
            reserved.append(reserve_in(context, part.log, row.count))
    except Sealed:
        for row, reservation in zip(rows, reserved, strict=False):
            context.log(reservation.log).abandon(reservation, row)
        raise
    return reserved
