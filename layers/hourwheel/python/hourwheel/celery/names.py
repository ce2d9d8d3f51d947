"""Turns the names of Kombu into those of Hourwheel, which have fewer characters and are shorter."""

import hashlib
import re

_OTHER = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 80  # leaves room for a level, and for what marks an exchange
_DIGEST = 10  # 40 bits: names of one program that differ only in replaced characters do not collide


def name_of(text: str) -> str:
    """Returns the text where it is a name. Else replaces what no name has, and adds a digest of the text."""
    if text and text not in {".", ".."} and len(text) <= _LONGEST and not _OTHER.search(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]
    return f"{_OTHER.sub('-', text)[: _LONGEST - _DIGEST - 1]}-{digest}"


def queue_subject(prefix: str, queue: str, level: int = 0) -> str:
    """Returns the subject of a queue, or of one of its higher levels of priority."""
    return name_of(prefix + queue) + (f".p{level}" if level else "")


def exchange_subject(prefix: str, exchange: str) -> str:
    return name_of(prefix + exchange) + ".exchange"
