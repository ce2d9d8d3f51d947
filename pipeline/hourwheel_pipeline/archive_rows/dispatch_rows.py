"""Makes rows of the table ``dispatches`` from blocks of the archive: one for each message that a transfer names."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from hourwheel.archive import blocks
from hourwheel.handover.handover import Transfer
from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel_pipeline.archive_rows.columns import batch_of, days, ints, pairs, timestamps
from hourwheel_pipeline.archive_rows.names import log_owner
from hourwheel_pipeline.lake.schemas import DISPATCHES


def dispatch_rows(block: memoryview, manifest: int) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the block as one batch; no batch if no transfer names a message."""
    decoded = blocks.decode_dispatches(block)
    transfers = [
        (decoded.logs[log], row, value.owner, number, transfer)
        for log, row, value in decoded.rows
        for number, transfer in enumerate(value.transfers)
    ]
    if not transfers:
        return
    counts = ints(len(transfer.picks) for *_, transfer in transfers)
    # For each message the index of its transfer.
    of_transfer = np.repeat(np.arange(len(transfers)), counts)
    index = np.arange(len(of_transfer)) - np.repeat(np.cumsum(counts) - counts, counts)
    picked = pairs(chain.from_iterable(transfer.picks for *_, transfer in transfers))
    by_transfer = _transfer_columns([transfer for *_, transfer in transfers])
    # Dropped messages have no target.
    nowhere = np.array([not transfer.log for *_, transfer in transfers], bool)[of_transfer]
    first = ints(transfer.first_seq for *_, transfer in transfers)[of_transfer]
    fields = {
        **{name: column.take(pa.array(of_transfer)) for name, column in by_transfer.items()},
        "bucket": pa.array([bucket for bucket, *_ in transfers]).take(pa.array(of_transfer)),
        "source_log": pa.array([SCHEDULE_PREFIX + bucket for bucket, *_ in transfers]).take(pa.array(of_transfer)),
        "dispatch_row": pa.array(ints(row for _, row, *_ in transfers)[of_transfer]),
        "owner": pa.array([owner for _, _, owner, *_ in transfers]).take(pa.array(of_transfer)),
        "transfer": pa.array(ints(number for *_, number, _ in transfers)[of_transfer], pa.int32()),
        "target_index": pa.array(index, pa.int32(), mask=nowhere),
        "target_sequence": pa.array(first + index, mask=nowhere),
        "source_row": pa.array(picked[:, 0]),
        "source_index": pa.array(picked[:, 1], pa.int32()),
    }
    yield batch_of(DISPATCHES, fields, len(of_transfer), manifest)


def _transfer_columns(transfers: Sequence[Transfer]) -> dict[str, pa.Array]:
    at_ms = ints(transfer.at_ms for transfer in transfers)
    expires_ms = ints(transfer.expires_ms for transfer in transfers)
    nowhere = np.array([not transfer.log for transfer in transfers], bool)
    return {
        "day": days(at_ms),
        "subject": pa.array(
            [log_owner(transfer.log).subject if transfer.log else "" for transfer in transfers], pa.string()
        ),
        "at": timestamps(at_ms),
        "kind": pa.array([transfer.kind for transfer in transfers], pa.string()),
        "target_log": pa.array([transfer.log or None for transfer in transfers], pa.string()),
        "target_row": pa.array(ints(transfer.row_no for transfer in transfers), mask=nowhere),
        "expires_at": timestamps(expires_ms, nowhere | (expires_ms == 0)),
    }
