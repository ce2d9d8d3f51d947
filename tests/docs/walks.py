"""Walks through a page as a reader does: saves its files, types its commands in order, and compares the outputs.

A block of Python is a file, which its first line names: ``# shop.py``. A block ``sh`` is typed into a terminal, the one
that the word behind ``sh`` names, or the first. A block ``text`` is what this terminal shows then. Commands of the
first terminal for which a page shows no output must print nothing. What a reader installs is there.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.docs.pages import Block, blocks
from tests.docs.terminals import Terminal
from tests.ports import free_ports

_INSTALLS = re.compile(r"^(python3 -m venv venv|\. venv/bin/activate|pip install .*)\n", re.MULTILINE)
_FILE = re.compile(r"# (\S+\.\w+)\n")


class Walk:
    """A reader in an empty folder. ``ports``: the free ports that take the place of those that the page names.
    ``warnings``: what Python does about warnings."""

    def __init__(self, folder: Path, ports: Mapping[str, str], warnings: str) -> None:
        self.folder = folder
        self._ports = ports
        self.url = self._here("http://127.0.0.1:7420")
        own = str(Path(sys.executable).parent)
        self._environment = {
            **os.environ,
            "PATH": f"{own}{os.pathsep}{os.environ['PATH']}",
            "PYTHONWARNINGS": warnings,
            "HOURWHEEL_URL": self.url,
        }
        self._terminals: dict[str, Terminal] = {}
        self._is_unseen = False  # whether the page has not shown yet what was typed last into the first terminal

    def take(self, block: Block) -> None:
        if block.language == "python":
            self._save(block.text)
        elif block.language == "sh":
            self._type(block)
        elif block.language == "text":
            self._see(block)

    def end(self) -> None:
        """Waits for the commands of the first terminal, if the page shows no output of them."""
        if self._is_unseen:
            self._terminals[""].end()
            self._is_unseen = False

    def close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()

    def _save(self, text: str) -> None:
        named = _FILE.match(text)
        assert named, f"the first line of a file names it: {text.partition(chr(10))[0]}"
        path = self.folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._here(text))

    def _type(self, block: Block) -> None:
        self.end()
        if commands := _INSTALLS.sub("", block.text):
            terminal = self._terminals.setdefault(block.terminal, Terminal(self.folder, self._environment))
            terminal.type(self._here(commands))
            self._is_unseen = not block.terminal

    def _see(self, block: Block) -> None:
        terminal, shown = self._terminals[block.terminal], self._here(block.text)
        if block.terminal or "^C" in shown:  # of a program that goes on
            terminal.see(shown)
        else:
            terminal.end(shown)
        if not block.terminal:
            self._is_unseen = False

    def _here(self, text: str) -> str:
        """Returns the text of the page with the ports of this walk."""
        serving = text.replace("hourwheel serve", "hourwheel serve --port 7420")
        return re.sub("|".join(self._ports), lambda port: self._ports[port[0]], serving)


@contextmanager
def walked(page: Path, folder: Path, *, warnings: str = "error") -> Iterator[Walk]:
    """Walks through the page, and yields at its end, while the programs of its terminals run."""
    shown = ("7420", "8000")
    walk = Walk(folder, dict(zip(shown, map(str, free_ports(len(shown))), strict=True)), warnings)
    try:
        for block in blocks(page):
            walk.take(block)
        walk.end()
        yield walk
    finally:
        walk.close()
