"""The line behind which an error is an answer: functions raise, the boundary answers and logs."""

from dataclasses import dataclass
from traceback import extract_tb
from types import TracebackType

from aws_lambda_powertools import Logger

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.api.problems import is_fault, problem_of
from hourwheel.cell import Cell
from hourwheel.errors import HourwheelError


@dataclass(frozen=True)
class Boundary:
    """Thread-safe."""

    cell: Cell
    logger: Logger

    def answer(self, function: Function, event: Event, context: Invocation | None) -> Response:
        """The function's answer, or the problem document of what it raised. Never raises an ``Exception``."""
        try:
            return function(self.cell, event, context)
        except Exception as error:
            instance = event["requestContext"]["requestId"]
            if is_fault(error):
                self.report(error, f"{event['routeKey']} failed", correlation_id=instance)
            return problem_of(error, instance)

    def report(self, error: Exception, what: str, *, correlation_id: str | None = None) -> None:
        """Logs a fault in one line. It quotes only messages of our own: those of others may hold what a client sent."""
        self.cell.context.meter.record("Faults", 1, dimensions={"error": type(error).__name__})
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
