"""Function ``archive``: archives the rows of the logs. A schedule invokes the function, not a request."""

from collections.abc import Callable

import msgspec

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.archive.archiver import Archiver, CommitLimits
from hourwheel.deployment.deployment import Deployment
from hourwheel.faults import Faults
from hourwheel.ports.storage import Blobs
from hourwheel.retention.archive_format import keep_archive_format

_LAST_COMMIT_MS = 60_000
"""The archiver stops this long before the invocation ends, so that a commit it has begun can finish."""

_COMMIT_MS = 45_000  # below ``_LAST_COMMIT_MS``, so that the last commit fits into the time left for it
_RUN_MS = 600_000  # the time of a run without an invocation, as in tests


def archiving(lake: Blobs, flush: Callable[[], None]) -> Function:
    """Returns the function that archives to ``lake`` until no row is left or its time is up.

    The function calls ``flush`` after each commit, and returns the archiver's report. It raises ``ValueError`` where
    the invocation has less than two minutes left, and ``DataVersion`` where this version must not use the archive.
    """

    faults = Faults()  # shared by all invocations of the process, so that each fault is logged once
    is_checked = False

    def archive(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
        left_ms = _RUN_MS if context is None else context.get_remaining_time_in_millis()
        # With less the archiver would stop before its first commit, in each invocation.
        if left_ms < 2 * _LAST_COMMIT_MS:
            raise ValueError(
                f"the function archive has {left_ms} ms left and needs {2 * _LAST_COMMIT_MS}: give it a longer time-out"
            )
        nonlocal is_checked
        if not is_checked:
            keep_archive_format(lake)
            is_checked = True
        archiver = Archiver(deployment.context, deployment.registry, lake, CommitLimits(commit_ms=_COMMIT_MS), faults)
        report = archiver.run(deployment.context.clock.now_ms() + left_ms - _LAST_COMMIT_MS, flush)
        answer: Response = msgspec.to_builtins(report)
        return answer

    return archive
