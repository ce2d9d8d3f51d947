"""A value that an option does not take is refused in a sentence that names the option and what it takes."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from hourwheel.cli.app import app
from tests.unit.cli.conftest import Shell

MESSAGES = "--messages-per-day"
RANGE = "must be a whole number from 0 to 1,000,000,000,000"


@pytest.mark.parametrize(
    ("line", "option", "sentence"),
    [
        (f"cost {MESSAGES} 1e30", MESSAGES, RANGE),
        (f"cost {MESSAGES} nan", MESSAGES, RANGE),
        (f"cost {MESSAGES}=-5", MESSAGES, RANGE),
        ("group seek orders billing --to middle", "--to", "must be one of start, end"),
        ("consume orders billing --then explode", "--then", "must be one of ack, retry, reject"),
        ("consume orders billing --max none", "--max", "must be a whole number of at least 1"),
        ("--sign never lag orders billing", "--sign", "must be aws"),
    ],
)
def test_the_sentence_names_the_option_and_its_values(shell: Shell, line: str, option: str, sentence: str) -> None:
    result = shell(*line.split())
    told = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in told
    assert f": {sentence}" in told
    assert "Input should" not in told
    assert "Value error" not in told


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("produce orders a --at 2027-01-01T09:00:00Z", "--deliver-at"),
        ("group create orders billing --attempts 5", "--max-attempts"),
        ("group create orders billing --max-attemps 5", "--max-attempts"),
    ],
)
def test_an_unknown_option_suggests_the_option_that_has_its_words(shell: Shell, line: str, option: str) -> None:
    result = shell(*line.split())
    assert result.exit_code == 2
    assert re.search(rf"\(Possible options: {option}[,)]", result.stderr)
    assert "--tag" not in result.stderr


@pytest.mark.parametrize("tags", [("--tags-any", ""), ("--tags-any", ",", "--tags-none", " ")])
def test_a_filter_without_tags_is_refused_in_words_of_the_command_line(shell: Shell, tags: tuple[str, ...]) -> None:
    result = shell("group", "create", "orders", "billing", *tags)
    assert result.exit_code == 2
    assert "these options name no tag; --no-filter removes a filter" in " ".join(result.stderr.split())
    assert not shell.server.requests


def commands(root: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Yields the root command, and all that are below it."""
    yield path
    for name, below in getattr(root, "commands", {}).items():
        yield from commands(below, *path, name)


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_help_names_no_type_of_python(shell: Shell, path: tuple[str, ...]) -> None:
    told = shell.ok(*path, "--help")
    assert re.findall(r"<\w+|\b(?:bool|str|int|float)\b|list\[", told) == []


def test_help_says_what_an_option_takes(shell: Shell) -> None:
    told = shell.ok("serve", "--help")
    for option, name in {
        "--data": "PATH",
        "--host": "TEXT",
        "--port": "NUMBER",
        "--synchronous": r"FULL\|NORMAL",
    }.items():
        assert re.search(rf"{option} +{name}", told)
    assert re.search("ROW +NUMBER", shell.ok("outbox", "retry", "--help"))
