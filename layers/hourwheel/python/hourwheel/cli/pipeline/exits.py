"""Ends a command: with errors and damage as sentences, and with the exit status that follows from them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from traceback import format_exception
from typing import Any

import typer

from hourwheel.errors import HourwheelError


@contextmanager
def errors_as_sentences(traceback: bool) -> Iterator[None]:
    """Turns an error in the block into one sentence, or a traceback, on stderr, and ends the command with the exit
    status of the error."""
    from hourwheel_pipeline.exits import of_error

    try:
        yield
    except (typer.BadParameter, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        if traceback:
            typer.echo("".join(format_exception(error)), err=True)
        else:
            typer.echo(f"hourwheel: {_sentence(error)}", err=True)
        raise typer.Exit(of_error(error)) from error


def _sentence(error: Exception) -> str:
    if isinstance(error, HourwheelError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first} (--traceback shows where)"


def end_with(reports: Sequence[Any]) -> None:
    """Prints the damage that the reports name, and ends the command with the exit status that follows from them."""
    from hourwheel_pipeline.outcomes import damage_in, of_reports

    damage = dict.fromkeys(sentence for report in reports for sentence in damage_in(report))
    end(list(damage), of_reports(reports))


def end(damage: Sequence[str], status: int) -> None:
    for sentence in damage:
        typer.echo(f"hourwheel: damaged: {sentence}", err=True)
    if status:
        raise typer.Exit(status)
