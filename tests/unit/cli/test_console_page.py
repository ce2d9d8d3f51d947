"""The browser of ``hourwheel console`` gets the secret from a file that only its user reads."""

import os
import stat
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from hourwheel.embedded.browser import console_server
from hourwheel.embedded.browser.console_server import Console
from tests.unit.cli.conftest import Shell

ADDRESS = "http://127.0.0.1:7421/console/#secret="


def test_the_command_line_of_the_browser_holds_no_secret(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    pages: list[tuple[int, str, Path]] = []
    secrets: list[str] = []

    def serve(console: Console, *, opened: Callable[[str], None], warn: object) -> None:
        secrets.append(console.secret)
        opened(ADDRESS + console.secret)

    def browse(url: str) -> bool:
        page = Path(unquote(urlsplit(url).path))
        opened.append(url)
        pages.append((stat.S_IMODE(page.stat().st_mode), page.read_text(), page))
        return True

    monkeypatch.setattr(console_server, "serve_console", serve)
    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(sys, "platform", "linux")
    before = os.umask(0)
    try:
        printed = shell("console", DISPLAY=":0").stdout
    finally:
        os.umask(before)
    ((mode, text, page),) = pages
    assert ADDRESS + secrets[0] in printed
    assert opened[0].startswith("file:///")
    assert secrets[0] not in opened[0]
    assert mode == 0o600
    assert f"url={ADDRESS}{secrets[0]}" in text
    assert not page.parent.exists()
