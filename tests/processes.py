"""Processes that tests start."""

import subprocess
from types import TracebackType
from typing import AnyStr


class Child(subprocess.Popen[AnyStr]):
    """A process that a failed ``with`` block kills: ``Popen`` would wait for it for ever."""

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)
