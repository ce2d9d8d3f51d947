"""Collects the errors that handlers raise in a test."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("hourwheel.consumer")


class HandlerErrors(logging.Handler):
    """Collects the errors of handlers from the log records of consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.raised: list[Exception] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            self.raised.append(error)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collects the errors of a block, and raises the first ``AssertionError`` among them at its end."""
        count = len(self.raised)
        _log.addHandler(self)
        try:
            yield
        finally:
            _log.removeHandler(self)
        failure = next((error for error in self.raised[count:] if isinstance(error, AssertionError)), None)
        if failure is not None:
            raise failure
