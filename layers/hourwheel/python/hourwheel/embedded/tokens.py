"""Tokens from a file.

# comments, and blank lines
TOKEN
TOKEN read-only
"""

import re
from pathlib import Path
from typing import NamedTuple

from hourwheel.embedded.private import read_private

_TOKEN = re.compile(r"[!-~]{1,1000}")  # what a header carries as it is
_READ_ONLY = "read-only"


class Tokens(NamedTuple):
    """``full`` ones may do everything."""

    full: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


def check_token(token: str) -> str:
    """The token, if it can be one; raises ``ValueError``, which does not repeat it."""
    if not token.strip():
        raise ValueError("a token is blank: give one that is not, or none at all")
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token has 1 to 1,000 printable ASCII characters and no blank in it")
    return token


def read_tokens(path: Path) -> Tokens:
    """The tokens in a file, one on each line. Raises ``ValueError``, also where there is none."""
    found: dict[bool, list[str]] = {False: [], True: []}
    for number, line in enumerate(read_private(path).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[1:] not in ([], [_READ_ONLY]):
            raise ValueError(f"line {number} of {path} holds a token and, at most, the word {_READ_ONLY} behind it")
        found[bool(words[1:])].append(check_token(words[0]))
    if not any(found.values()):
        raise ValueError(f"{path} holds no token")
    return Tokens(tuple(found[False]), tuple(found[True]))
