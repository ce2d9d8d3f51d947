"""Builds parts of sentences that people read."""


def counted(number: int, noun: str) -> str:
    """Returns the number with its noun: "1 message", "2 messages"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
