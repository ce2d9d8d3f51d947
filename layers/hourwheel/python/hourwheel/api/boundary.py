"""Turns the errors that functions raise into answers, and logs faults.

While a function runs, every line that the library logs carries the id of the request or invocation as
``correlation_id``.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from traceback import extract_tb
from types import TracebackType

from aws_lambda_powertools import Logger

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.api.outage_log import OutageLog
from hourwheel.api.problems import is_fault, problem_of
from hourwheel.api.requests import check_no_body, check_parameters
from hourwheel.api.routes import ROUTES
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import HourwheelError

_ROUTES = {route.key: route for route in ROUTES}
_BODILESS = {route.key: route for route in ROUTES if route.body is None and route.query is not None}

_OUTAGES = (503, 507)  # the storage is out of reach, or full
_current: ContextVar[str | None] = ContextVar("correlation", default=None)


def _correlate(record: logging.LogRecord) -> bool:
    if getattr(record, "correlation_id", None) is None:
        record.correlation_id = _current.get()
    return True


logging.getLogger("hourwheel").addFilter(_correlate)


def _produces(event: Event) -> bool:
    """Returns whether the request sends messages. One through the URL of a function has no route yet."""
    path: str = event["rawPath"]
    return event["requestContext"]["http"]["method"] == "POST" and path.endswith("/messages")


def log_line(record: object) -> str:
    """Returns a log record as JSON in ASCII.

    An error may quote what a client sent, and an operator may read the log on a terminal that obeys escape sequences.
    """
    return json.dumps(record, default=str, separators=(",", ":"))


@contextmanager
def correlated(name: str | None) -> Iterator[None]:
    """Adds the name as ``correlation_id`` to each line that this thread or greenlet logs within the block."""
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True)
class Boundary:
    """Runs functions on a deployment and handles their errors. Thread-safe."""

    deployment: Deployment
    logger: Logger
    _outage_log: OutageLog = field(default_factory=OutageLog)

    def answer(self, function: Function, event: Event, context: Invocation | None) -> Response:
        """Returns the function's answer, or the problem document of its error. Never raises an ``Exception``."""
        instance = event["requestContext"]["requestId"]
        token = _current.set(instance)  # not ``correlated``: a context manager would cost every request more
        try:
            # A request through the URL of a function has no route yet: ``urls.serve`` checks it.
            if event.get("queryStringParameters") and (route := _ROUTES.get(event["routeKey"])) is not None:
                check_parameters(event, route)
            if event.get("body") and (route := _BODILESS.get(event["routeKey"])) is not None:
                check_no_body(event, route)
            return function(self.deployment, event, context)
        except Exception as error:
            response = problem_of(error, instance, produces=_produces(event))
            self._log(error, response["statusCode"], f"{event['routeKey']} failed", instance)
            return response
        finally:
            _current.reset(token)

    def _log(self, error: Exception, status: int, what: str, correlation_id: str) -> None:
        """Logs a fault, and an outage of the storage as far as the log is not full of it."""
        if status not in _OUTAGES:
            if is_fault(error):
                self.report(error, what, correlation_id=correlation_id)
            return
        context = self.deployment.context
        if is_fault(error):
            context.meter.record("Faults", 1)
        left_out = self._outage_log.left_out(error, context.clock.now_ms())
        if left_out is not None:
            kind, reason = type(error).__name__, str(error)
            self.logger.warning(what, correlation_id=correlation_id, error=kind, reason=reason, left_out=left_out)

    def run(self, function: Function, event: Event, context: Invocation) -> Response:
        """Returns the answer of a function that a schedule or another function invoked. Its errors reach Lambda."""
        with correlated(getattr(context, "aws_request_id", None)):
            return function(self.deployment, event, context)

    def report(self, error: Exception, what: str, *, correlation_id: str | None = None) -> None:
        """Logs a fault in one line and counts it in the metric ``Faults``.

        The line quotes the messages of the library's own errors only: those of other packages may hold client data.
        """
        self.deployment.context.meter.record("Faults", 1)
        self.logger.error(
            what,
            correlation_id=correlation_id,
            error=type(error).__name__,
            reason=str(error) if isinstance(error, HourwheelError) else None,
            stack=_stack(error.__traceback__),
            cause=None if error.__cause__ is None else type(error.__cause__).__name__,
        )


def _stack(trace: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in extract_tb(trace)]
