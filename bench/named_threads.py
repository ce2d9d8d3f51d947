"""Runs ``hourwheel`` with the names of its threads where Linux shows them: ``python -m bench.named_threads serve …``.

A benchmark of something else then leaves out the CPU of the sweeper, which works for some seconds each minute.
"""

import ctypes
import threading

from hourwheel.cli.main import run

_PR_SET_NAME = 15  # of prctl(2), which keeps 15 bytes
_libc = ctypes.CDLL(None)
_run_thread = threading.Thread.run


def _named(thread: threading.Thread) -> None:
    _libc.prctl(_PR_SET_NAME, thread.name.encode()[:15], 0, 0, 0)
    _run_thread(thread)


if __name__ == "__main__":
    threading.Thread.run = _named  # type: ignore
    run()
