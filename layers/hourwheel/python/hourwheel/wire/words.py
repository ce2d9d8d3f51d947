"""Builds parts of sentences that people read."""

import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def counted(number: int, noun: str) -> str:
    """Returns the number with its noun: "1 message", "2 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def no_queue(subject: str, queue: int, queues: int) -> str:
    """Returns that a subject does not have this queue, and which it has."""
    return f"subject {subject!r} has no queue {queue}: it has {counted(queues, 'queue')}, numbered from 0"


def shown(text: str) -> str:
    """Returns the text with escapes in place of characters that a terminal or a log would obey or hide.

    These are controls (line ends too, which would forge rows), marks that turn the direction of writing, characters
    without width, and characters that are not assigned.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(character: str) -> str:
    # Blanks of other widths are harmless, though Python calls them not printable.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    form = f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return _SHORT.get(character, form)
