"""Ends a command: with errors and damage as sentences, and with the exit status that follows from them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from traceback import format_exception
from typing import Any

import typer

from hourwheel.errors import HourwheelError


@contextmanager
def errors_as_sentences(traceback: bool) -> Iterator[Callable[[Exception], int]]:
    """Turns an error in the block into one sentence, or a traceback, on stderr, and ends the command with the exit
    status of the error. Yields a function that does so without an end, and returns the status."""
    try:
        yield partial(_say_why, traceback)
    except (typer.BadParameter, typer.Exit, typer.Abort):
        raise
    except Exception as error:
        raise typer.Exit(_say_why(traceback, error)) from error


def _say_why(traceback: bool, error: Exception) -> int:
    from hourwheel_pipeline.runs.exits import of_error

    text = "".join(format_exception(error)) if traceback else f"hourwheel: {_sentence(error)}"
    typer.echo(text, err=True)
    return of_error(error)


def _sentence(error: Exception) -> str:
    if isinstance(error, HourwheelError):
        return str(error)
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first} (--traceback shows where)"


def end_with(reports: Sequence[Any], statuses: Sequence[int] = ()) -> None:
    """Prints the damage that the reports name, and ends the command with the worst exit status: the one that follows
    from the reports, or one of the ``statuses`` of jobs that failed."""
    from hourwheel_pipeline.outcomes.report_status import damage_in, of_reports
    from hourwheel_pipeline.runs.exits import worst_of

    damage = dict.fromkeys(sentence for report in reports for sentence in damage_in(report))
    end(list(damage), worst_of([*statuses, of_reports(reports)]))


def end(damage: Sequence[str], status: int) -> None:
    for sentence in damage:
        typer.echo(f"hourwheel: damaged: {sentence}", err=True)
    if status:
        raise typer.Exit(status)
