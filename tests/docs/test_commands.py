"""Every command line in the pages is one that the command understands."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from hourwheel.cli.app import app
from tests.docs.pages import PAGES, ROOT, command_lines

LINES = [(page, line) for page in PAGES for line in command_lines(page)]


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page.name}: {line}" for page, line in LINES])
def test_the_command_line_is_understood(page: Path, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parse(typer.main.get_command(app), "hourwheel", shlex.split(line.removesuffix("&"))[1:])


def parse(command: Any, name: str, args: list[str], parent: Any = None) -> None:
    """Raises a usage error. A command without arguments is only named."""
    if not args:
        return
    context = command.make_context(name, args, parent)
    rest = [*context._protected_args, *context.args]
    if rest:
        name, inner, args = command.resolve_command(context, rest)
        parse(inner, name, args, context)


def test_the_pages_show_commands() -> None:
    assert {page.name for page, _ in LINES} >= {"README.md", "command-line.md", "serving.md"}
    assert (ROOT / "README.md", "hourwheel serve --data ./queue") in LINES
