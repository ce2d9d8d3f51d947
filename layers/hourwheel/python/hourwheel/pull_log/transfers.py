"""Carries out the transfers that a pull row names."""

import msgspec

from hourwheel.handover.copies import RowMaker
from hourwheel.handover.handover import carry_out
from hourwheel.logs.cas import Versioned
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, PullRow


def finish(log: PullLog, row_no: int, current: Versioned[PullRow]) -> Versioned[PullRow]:
    """Carries out the transfers that the pull row names, and returns the row without them."""
    value = current.value
    if not value.transfers:
        return current
    row = RowMaker(log.context, log.source, log.queue, attempts=value.attempts())
    done = carry_out(log.context, log.record(row_no), current, row)
    # Only closed rows are removed, days later: a row that is missing was closed.
    return done or current.changed(msgspec.structs.replace(value, state=CLOSED, transfers=()))
