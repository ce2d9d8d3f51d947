"""Types commands into terminals as a reader does, and compares what they print with what a page shows.

A page may leave text out with ``…``: a line of its own stands for any lines, any other one for the rest of its line.
``^C`` is where the reader presses Ctrl-C. Times, ids and the width of tables may differ.
"""

import contextlib
import os
import pty
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.integration.process import SECONDS

INTERRUPT = "^C\n"
_COLUMNS = 200  # no table of a page folds
_DIFFERENT = {
    r"\x1b\[[0-9;?]*[a-zA-Z]": "",  # bold
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?Z": "TIME",
    r"\b[0-9a-f]{28}-\d+\b": "ID",
    r"\b[\w.-]+-\d+-[0-9a-f]{8}\b": "CONSUMER",
    r"─+": "─",
    r"[ \r]+": " ",
}


def alike(text: str) -> str:
    """Returns the text without blank lines and without what differs from run to run."""
    for pattern, instead in _DIFFERENT.items():
        text = re.sub(pattern, instead, text)
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


def matches(shown: str, printed: str) -> bool:
    """Returns whether a page may show this for what was printed."""
    pattern = re.escape(alike(shown)).replace("…\\\n", "…\n")
    pattern = re.sub(r"^…\n", "(?:.*\n)*?", pattern, flags=re.MULTILINE).replace("…", ".*")
    return re.fullmatch(pattern, alike(printed)) is not None


class Terminal:
    """One terminal, in which one block of commands runs at a time. ``close`` it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._process: subprocess.Popen[bytes] | None = None

    def type(self, commands: str) -> None:
        """Starts the commands; the first one that fails ends them."""
        self.close()
        self._output, screen = pty.openpty()
        termios.tcsetwinsize(screen, (50, _COLUMNS))
        self._process = subprocess.Popen(
            ["bash", "-euc", commands],
            cwd=self._folder,
            env={**self._environment, "TERM": "xterm"},
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        os.close(screen)

    def see(self, shown: str) -> None:
        """Fails unless the terminal shows this. Text before ``^C`` is awaited; without it the commands may go on."""
        before, interrupt, after = shown.partition(INTERRUPT)
        printed = self._read_until(before)
        assert matches(before, printed), f"the page shows\n{before}\nand the terminal\n{printed}"
        if interrupt:
            self._signal(signal.SIGINT)
            self.end(after, (0, -signal.SIGINT))  # uvicorn ends by the signal

    def end(self, shown: str = "", statuses: Sequence[int] = (0,)) -> None:
        """Fails unless the commands print this and end with one of these exit statuses."""
        printed = self._read_until(None)
        assert matches(shown, printed), f"the page shows\n{shown}\nand the terminal\n{printed}"
        assert self._process is not None
        assert self._process.wait(SECONDS) in statuses, printed

    def close(self) -> None:
        """Ends the commands, if they run, and closes the terminal."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait(SECONDS)
            os.close(self._output)
            self._process = None

    def _read_until(self, shown: str | None) -> str:
        """Returns what the terminal prints until it shows this, or to its end."""
        late = threading.Timer(SECONDS, self._signal, [signal.SIGKILL])
        late.start()
        printed = b""
        try:
            while shown is None or not matches(shown, printed.decode(errors="replace")):
                piece = self._read()
                if not piece:
                    break
                printed += piece
        finally:
            late.cancel()
        return printed.decode(errors="replace")

    def _read(self) -> bytes:
        try:
            return os.read(self._output, 65_536)
        except OSError:  # EIO: the last process has closed the terminal
            return b""

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
