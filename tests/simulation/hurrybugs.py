"""Plants bugs of early retries: the real code with one clause of the protocol left out."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec

from hourwheel.buckets.buckets import Bucket
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.pending_changes import TOO_LATE
from hourwheel.groups import early_retries
from hourwheel.groups.early_retries import DelayedRetries
from hourwheel.logs.cas import Versioned
from hourwheel.logs.log import Log
from hourwheel.model.groups import RetryPolicy
from tests.simulation.bugs import Bug, registrar
from tests.simulation.delaybugs import waiting
from tests.simulation.faults import Faults

HURRIED: list[Bug] = []
planted = registrar(HURRIED)

_operators_in_a_hurry = waiting(
    retry=RetryPolicy(first_seconds=20), moves=("hurry",), operators=2, groups=("a", "b"), ordered=False, calls=600
)
_readers_of_old_rows = waiting(
    retry=RetryPolicy(first_seconds=20),
    moves=("hurry",),
    operators=2,
    ordered=False,
    transactional=False,
    faults=Faults(stale=1.2),
    calls=600,
)


@planted(sharpen=_operators_in_a_hurry)
def an_early_retry_is_a_copy_of_the_one_that_waits() -> Iterator[None]:
    class Copying(ScheduledMessages):
        def _append_marker(self, position: Any, current: Any) -> Any:
            return Versioned(msgspec.structs.replace(current.value, marker_row=TOO_LATE), current.token)

        def _await_owner(self, *_: Any) -> None:
            return

    with patch.object(early_retries, "ScheduledMessages", Copying):
        yield


@planted(sharpen=_operators_in_a_hurry)
def an_early_retry_takes_the_retries_of_every_group() -> Iterator[None]:
    def row_nos(self: DelayedRetries) -> dict[Bucket, list[int]]:
        real(self)  # reads the logs
        found: defaultdict[Bucket, list[int]] = defaultdict(list)
        for name, tally in self.pending_counts._tallies.items():
            found[Bucket.parse(name)] += [row_no for row_no, (*_, member) in tally.addresses.items() if member]
        return dict(sorted(found.items()))

    real = DelayedRetries._row_nos
    with patch.object(DelayedRetries, "_row_nos", row_nos):
        yield


@planted(sharpen=_readers_of_old_rows)
def an_early_retry_misses_rows_that_a_replica_has_not_got_yet() -> Iterator[None]:
    def get_many(self: Log, rows: Any, *, consistent: bool = False) -> Any:
        return real(self, rows, consistent=False)

    real = Log.get_many
    with patch.object(Log, "get_many", get_many):
        yield
