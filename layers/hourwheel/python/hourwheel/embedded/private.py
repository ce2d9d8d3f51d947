"""Files that hold secrets: tokens, keys."""

import os
import stat
from pathlib import Path

_OTHERS = stat.S_IWGRP | stat.S_IRWXO


def read_private(path: Path) -> str:
    """The text of a file that only its owner, and a group that may not write, can read. Raises ``ValueError`` that says
    in one sentence what is wrong with it."""
    try:
        with path.open(encoding="utf-8") as file:
            _check_mode(path, os.fstat(file.fileno()).st_mode)
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text in UTF-8") from error
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error


def _check_mode(path: Path, mode: int) -> None:
    """A group may read, as PostgreSQL has it of keys: services are given files of root's in this way."""
    if stat.S_ISREG(mode) and mode & _OTHERS:
        raise ValueError(
            f"{path} is open to others (mode {stat.S_IMODE(mode):04o}), and holds secrets: chmod 600 {path}"
        )
