"""Turns the names of Kombu into names of Hourwheel, which are shorter and allow fewer characters."""

import hashlib
import re

_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 80  # of the 100 characters of a name: leaves room for ``.p9`` and ``.exchange``
_DIGEST = 10  # 40 bits: names of one program that differ only in replaced characters do not collide


def name_of(text: str) -> str:
    """Returns the text where it is a valid name. Otherwise replaces the characters that a name may not have, and adds a
    digest of the text, so that names stay different."""
    if text and text not in {".", ".."} and len(text) <= _LONGEST and not _NOT_ALLOWED.search(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{_NOT_ALLOWED.sub('-', text)[: _LONGEST - _DIGEST - 1]}-{digest}"


def queue_subject(prefix: str, queue: str, level: int = 0) -> str:
    """Returns the subject of a queue, or of one of its higher levels of priority."""
    return name_of(prefix + queue) + (f".p{level}" if level else "")


def exchange_subject(prefix: str, exchange: str) -> str:
    return name_of(prefix + exchange) + ".exchange"
