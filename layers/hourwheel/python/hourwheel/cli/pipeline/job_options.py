"""Parses the options of a job, which follow its name."""

from collections.abc import Sequence

import typer

from hourwheel.cli.pipeline.jobs import DAILY, JOBS
from hourwheel.cli.settings import settings_of


def job_of(ctx: typer.Context, words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Returns the job that the words name, and its options. Without a name, the job is that of each day."""
    job, *rest = words if words and not words[0].startswith("--") else [DAILY, *words]
    if job not in JOBS:
        raise typer.BadParameter(f"there is no job {job!r}: the jobs are {', '.join(JOBS)}")
    return job, _options_of(ctx, job, rest)


def _options_of(ctx: typer.Context, job: str, words: Sequence[str]) -> dict[str, str]:
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
