"""Reads tokens from a file. Each line is one of:

# comments, and blank lines
TOKEN
TOKEN read-only
"""

import re
from pathlib import Path
from typing import NamedTuple

from hourwheel.embedded.credentials.private import read_private

_TOKEN = re.compile(r"[!-~]{1,1000}")  # characters that a header carries unchanged
_LEAST_CHARACTERS = 6  # a billion guesses even with lower-case letters and digits alone
_READ_ONLY = "read-only"


class Tokens(NamedTuple):
    """Holds tokens that may do everything (``full``), and tokens that may only read."""

    full: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()


def check_token(token: str) -> str:
    """Returns the token. Raises ``ValueError``, whose text does not quote it, for a text that cannot be a token."""
    if not token.strip():
        raise ValueError("a token is blank: give a token, or leave it out")
    if not _TOKEN.fullmatch(token):
        raise ValueError("a token has 1 to 1,000 printable ASCII characters and no blank in it")
    return token


def check_new_token(token: str) -> str:
    """Returns the token of a server. Raises ``ValueError`` for one that could be guessed, and as ``check_token``
    does."""
    if len(check_token(token)) < _LEAST_CHARACTERS:
        raise ValueError(f"a token could be guessed: give one of at least {_LEAST_CHARACTERS} characters, better 32")
    return token


def read_tokens(path: Path) -> Tokens:
    """Returns the tokens of a file, one on each line. Raises ``ValueError`` for a file that ``read_private`` refuses,
    for a wrong line, and for a file without tokens."""
    tokens: dict[bool, list[str]] = {False: [], True: []}
    for number, line in enumerate(read_private(path).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[1:] not in ([], [_READ_ONLY]):
            raise ValueError(f"line {number} of {path} holds a token and, at most, the word {_READ_ONLY} behind it")
        tokens[bool(words[1:])].append(check_token(words[0]))
    if not any(tokens.values()):
        raise ValueError(f"{path} holds no token: write one on a line of its own")
    return Tokens(tuple(tokens[False]), tuple(tokens[True]))
