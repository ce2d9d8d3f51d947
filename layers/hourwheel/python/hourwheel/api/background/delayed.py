"""Function ``delayed``: tends delayed work in an invocation of its own, and starts the sweeps of everything else.

A schedule invokes the function each minute. One schedule for both costs a third of two; and as nothing runs before the
delayed work, nothing can hold it up.
"""

import logging
from collections.abc import Callable

import msgspec

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Broken, Unavailable
from hourwheel.sweep.shares import WHOLE
from hourwheel.sweep.sweep import Sweeper

_logger = logging.getLogger("hourwheel")


def tending(start_sweep: Callable[[Event], None]) -> Function:
    """Returns the function, which calls ``start_sweep`` with the event of each share of the subjects, between the work
    that is urgent and the removal of buckets."""

    def delayed(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
        sweeper: Sweeper = deployment.sweeper
        report = sweeper.delayed.tend(lambda: _start(deployment, start_sweep))
        answer: Response = msgspec.to_builtins(report)
        return answer

    return delayed


def _start(deployment: Deployment, start_sweep: Callable[[Event], None]) -> None:
    """Starts a sweep of each share. If one fails, reports it: the next minute starts another one."""
    for share in deployment.sweeper.delayed.shares():
        try:
            start_sweep({} if share == WHOLE else {"share": share.number, "shares": share.of})
        except (Unavailable, Broken) as error:
            deployment.context.meter.record("WakesMissed", 1)
            _logger.error("no sweep could be started: %s", error)
