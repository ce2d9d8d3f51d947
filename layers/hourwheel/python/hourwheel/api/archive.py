"""Function ``archive``: archives what the logs hold, started by the clock and not by a request."""

from collections.abc import Callable

import msgspec

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.archive.archiver import Archiver, Limits
from hourwheel.cell import Cell
from hourwheel.faults import Faults
from hourwheel.ports import Blobs

_LAST_COMMIT_MS = 60_000
"""Left over from the time of an invocation for a commit that was begun."""

_COMMIT_MS = 45_000
_RUN_MS = 600_000


def archiving(lake: Blobs, flush: Callable[[], None]) -> Function:
    """The function. It archives to ``lake`` until nothing is left or its time is up, and calls ``flush`` after each
    commit.

    Raises ``ValueError`` for an invocation that is too short.
    """

    faults = Faults()  # for the life of the process: what was told is not told again

    def archive(cell: Cell, event: Event, context: Invocation | None) -> Response:
        left_ms = _RUN_MS if context is None else context.get_remaining_time_in_millis()
        if left_ms < 2 * _LAST_COMMIT_MS:
            raise ValueError(f"the function has {left_ms} ms left and needs {2 * _LAST_COMMIT_MS}: give it more time")
        archiver = Archiver(cell.context, cell.registry, lake, Limits(commit_ms=_COMMIT_MS), faults)
        report = archiver.run(cell.context.clock.now_ms() + left_ms - _LAST_COMMIT_MS, flush)
        answer: Response = msgspec.to_builtins(report)
        return answer

    return archive
