"""Reads files that hold secrets: tokens and keys."""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IRWXO


def read_private(path: Path) -> str:
    """Returns the text of a file that only its owner and a group may read, and only the owner may write.

    Raises ``ValueError`` with one sentence about the fault.
    """
    try:
        with path.open(encoding="utf-8") as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8") from error
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _check_mode(path: Path, mode: int) -> None:
    """Raises ``ValueError`` where others may read, or a group may write.

    A group may read, as PostgreSQL allows for keys: services read files of root in this way.
    """
    if stat.S_ISREG(mode) and mode & _OTHERS:
        raise ValueError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}), and holds secrets: chmod 600 {path}"
        )
