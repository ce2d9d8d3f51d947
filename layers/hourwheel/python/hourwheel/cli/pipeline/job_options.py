"""Parses the options of a job, which follow its name."""

from collections.abc import Sequence

import typer

from hourwheel.cli.settings import settings_of


def job_options_of(ctx: typer.Context, job: str, words: Sequence[str]) -> dict[str, str]:
    """Returns the options of the job. ``replay`` sends to a server, so it also gets the shared options."""
    job_options = _pairs(words)
    if job == "replay":
        shared = settings_of(ctx)
        named = {"url": shared.url, "token": shared.token, "sign": shared.sign, "region": shared.region}
        job_options = {**{name: text for name, text in named.items() if text is not None}, **job_options}
    return job_options


def _pairs(words: Sequence[str]) -> dict[str, str]:
    """Parses ``--name value``, ``--name=value``, and ``--name`` alone, which is true."""
    options: dict[str, str] = {}
    index = 0
    while index < len(words):
        name, equals, text = words[index].partition("=")
        if not name.startswith("--"):
            raise typer.BadParameter(f"{words[index]!r} is not of the form --name value")
        index += 1
        if not equals and index < len(words) and not words[index].startswith("--"):
            text, index = words[index], index + 1
        elif not equals:
            text = "true"
        options[name[2:].replace("-", "_")] = text
    return options
