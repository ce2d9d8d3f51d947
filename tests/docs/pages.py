"""Reads the pages of the documentation, and the examples in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("", "docs/", "docs/api/", "docs/howto/", "docs/reference/")
PAGES = sorted(page for folder in FOLDERS for page in ROOT.glob(f"{folder}*.md"))
API_PAGES = sorted(ROOT.glob("docs/api/*.md"))
"""The reference of the HTTP API: a page for each resource."""
HOWTOS = sorted(ROOT.glob("docs/howto/*.md"))
HOWTOS_OF_FRAMEWORKS = [ROOT / f"docs/howto/{name}.md" for name in ("celery-redis", "django", "fastapi")]
"""Their examples need what ``tests/apps`` has installed."""

_FENCE = re.compile(r"^```(\w*)(?: +(\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(hourwheel [^`]+)`")


class Block(NamedTuple):
    """A fenced block. The word behind its language, if there is one, names the terminal in which it is typed or
    shown."""

    language: str
    terminal: str
    text: str


def blocks(page: Path) -> list[Block]:
    """Returns the fenced blocks, in order."""
    return [Block(*found) for found in _FENCE.findall(page.read_text())]


def examples(page: Path, language: str) -> list[str]:
    """Returns the fenced blocks of a language, in order."""
    return [block.text for block in blocks(page) if block.language == language]


def command_lines(page: Path) -> list[str]:
    """Returns every command ``hourwheel …`` of the page: those in shell blocks, without their comments, and in
    tables."""
    shell = [line.partition("  #")[0].strip() for text in examples(page, "sh") for line in text.splitlines()]
    tables = [span for line in page.read_text().splitlines() if line.startswith("|") for span in _SPAN.findall(line)]
    return [line for line in (*shell, *tables) if line.startswith("hourwheel ")]
