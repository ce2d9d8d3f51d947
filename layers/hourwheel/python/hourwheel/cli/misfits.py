"""Describes in Hourwheel's own words which values an option or argument takes, and what is wrong with a value."""

import re
from functools import partial
from typing import Any, get_args

import typer

_NEGATIVE = re.compile(r"-[\d.]")
"""A negative number among the arguments, which is read as an option."""

_KINDS: dict[Any, str] = {int: "a whole number", float: "a number"}
_NAMES: dict[Any, str] = {bool: "", int: "NUMBER", float: "NUMBER"}


def name_values(command: Any, ctx: Any) -> None:
    """Sets the names that ``--help`` gives the values of parameters, such as NUMBER, for a command and all commands
    below it. Parameters with a ``metavar`` keep it."""
    for parameter in command.get_params(ctx):
        parameter.display_type = partial(_value_name, parameter.type_descriptor)
    for below in getattr(command, "commands", {}).values():
        name_values(below, ctx)


def _value_name(descriptor: Any, _: Any) -> str:
    if descriptor.choices is not None:
        return "|".join(str(getattr(choice, "value", choice)) for choice in descriptor.choices)
    if descriptor.is_path:
        return "PATH"
    kind = get_args(descriptor.annotation)[0] if descriptor.is_list else descriptor.annotation
    return _NAMES.get(kind, "TEXT")


def describe_misfit(error: typer.BadParameter) -> None:
    """Replaces a message of pydantic by a sentence that names the allowed values. Leaves other messages."""
    descriptor: Any = getattr(error.param, "type_descriptor", None)
    # An error of pydantic is told by its attribute ``errors``: importing pydantic for its type would take long.
    if descriptor is None or not hasattr(error.__cause__, "errors"):
        return
    if descriptor.choices is not None:
        names = [str(getattr(choice, "value", choice)) for choice in descriptor.choices]
        error.message = f"must be {'one of ' * (len(names) > 1)}{', '.join(names)}"
    elif descriptor.annotation in _KINDS:
        low, high = descriptor.parameter_info.min, descriptor.parameter_info.max
        error.message = f"must be {_KINDS[descriptor.annotation]}{_range(low, high)}"


def suggest_options(error: Any) -> None:
    """Suggests, for an unknown option such as ``--at``, the options that contain its words, such as ``--deliver-at``.
    Keeps the suggestions of typer if there are none, and for other errors."""
    if not hasattr(error, "possibilities") or error.ctx is None:
        return
    if _NEGATIVE.match(error.option_name):
        error.message = (
            f"No such option: {error.option_name}. Queues, their numbers and offsets are whole numbers from 0; write --"
            " before a text that begins with a dash"
        )
        return
    words = set(_words(error.option_name))
    options = [option for parameter in error.ctx.command.params for option in parameter.opts]
    error.possibilities = [option for option in options if words.issubset(_words(option))] or error.possibilities


def _words(option: str) -> list[str]:
    return option.removeprefix("--").split("-")


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:,} to {high:,}"
    if low is not None:
        return f" of at least {low:,}"
    return "" if high is None else f" of at most {high:,}"
