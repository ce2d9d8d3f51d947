"""Reads files that hold secrets: tokens and keys."""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IRWXO


def read_private(path: Path) -> str:
    """Returns the text of a file that only its owner and its group may read, and only its owner may write.

    Raises ``ValueError`` with one sentence for any other file, and for one that cannot be read.
    """
    try:
        if path.resolve().is_fifo():  # a pipe of the shell, as in <(command), has no such name
            raise ValueError(f"{path} is a named pipe, which might never be written: give a file")
        with path.open(encoding="utf-8") as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8") from error
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _check_mode(path: Path, mode: int) -> None:
    """Raises ``ValueError`` for a file that others may read, or that its group may write.

    Its group may read it: so services read files of root, and PostgreSQL allows it for keys too.
    """
    if stat.S_ISREG(mode) and mode & _OTHERS:
        raise ValueError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}), and holds secrets: chmod 600 {path}"
        )
