"""Makes folders into which Spark spills on one machine. No other user may open them, and each job removes those that a
killed job left.

{parent}/spark-{process}-{random}
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "spark-"

_SEPARATORS = frozenset(',"\\')
"""Separators in Spark's lists of folders and options: a path with one of them would name other folders."""


def make_scratch(parent: Path | None) -> Path:
    """Makes a folder that only its owner may open, below ``parent`` (default: the system's folder for temporary files).
    The folder is removed when this process ends."""
    if parent is not None and not _SEPARATORS.isdisjoint(str(parent.absolute())):
        parent = None
    if parent is not None:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent)).absolute()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _remove_abandoned(parent: Path) -> None:
    """Removes the folders of processes that ended without removing them."""
    for folder in parent.glob(f"{_PREFIX}*-*"):
        process = folder.name.split("-")[1]
        if process.isdecimal() and not _runs(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)  # signal 0 only checks that the process exists
    except ProcessLookupError:
        return False
    except PermissionError:  # the process of another user
        return True
    return True
