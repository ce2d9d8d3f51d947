"""Function ``delayed``: tends delayed work in an invocation of its own, and starts the sweep of everything else.

A schedule invokes the function each minute. One schedule for both costs a third of two; and as nothing runs before the
delayed work, nothing can hold it up.
"""

import logging
from collections.abc import Callable

import msgspec

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Broken, Unavailable

_logger = logging.getLogger("hourwheel")


def tending(start_sweep: Callable[[], None]) -> Function:
    """Returns the function, which calls ``start_sweep`` between the work that is urgent and the removal of buckets."""

    def delayed(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
        report = deployment.sweeper.delayed.tend(lambda: _start(deployment, start_sweep))
        answer: Response = msgspec.to_builtins(report)
        return answer

    return delayed


def _start(deployment: Deployment, start_sweep: Callable[[], None]) -> None:
    """Starts a sweep. If that fails, reports it: the next minute starts another one."""
    try:
        start_sweep()
    except (Unavailable, Broken) as error:
        deployment.context.meter.record("WakesMissed", 1)
        _logger.error("no sweep could be started: %s", error)
