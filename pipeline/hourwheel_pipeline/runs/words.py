"""Writes numbers with their nouns."""

from collections.abc import Mapping


def counted(number: int, noun: str) -> str:
    """Returns a number with its noun: ``1 problem``, ``no problems``, ``12,345 problems``."""
    return f"{f'{number:,}' if number else 'no'} {noun}{'' if number == 1 else 's'}"


def found_words(counts: Mapping[str, int]) -> str:
    """Returns the number of findings, and the number of each kind."""
    listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return f"{counted(sum(counts.values()), 'finding')}{': ' * bool(listed)}{listed}"
