"""Repeats background work, each kind in a thread of its own."""

import threading
from collections.abc import Callable

from hourwheel.api.boundary import Boundary
from hourwheel.api.problems import is_fault


class Repeating:
    """Calls ``work`` every ``seconds`` until ``stop``. Of equal errors in a row it reports the first."""

    def __init__(self, name: str, work: Callable[[], object], *, seconds: float, boundary: Boundary) -> None:
        self._name = name
        self._work = work
        self._seconds = seconds
        self._boundary = boundary
        self._stop = threading.Event()
        self._last = ""
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Ends the repetition, and waits for the call under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self._work()
                self._last = ""
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                if is_fault(error) and text != self._last:
                    self._boundary.report(error, f"{self._name} failed")
                self._last = text
