"""Makes an option of the command line for each setting that a record declares."""

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer
from msgspec import Struct

from hourwheel.model.settings import DeclaredField, declared, without_links

F = TypeVar("F", bound=Callable[..., None])


def takes_settings(record: type[Struct]) -> Callable[[F], F]:
    """Returns a decorator that gives a command an option for each setting of a record, as ``takes_fields`` does."""
    return takes_fields(declared(record))


def takes_fields(fields: Sequence[DeclaredField], prefix: str = "") -> Callable[[F], F]:
    """Returns a decorator that gives a command an option for each field. The command gets them as its keyword
    arguments, under the names of the fields behind the prefix; None stands for an option that was left out."""

    def decorate(command: F) -> F:
        signature = inspect.signature(command)
        own = [
            parameter
            for parameter in signature.parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        arguments = [parameter for parameter in own if parameter.default is inspect.Parameter.empty]
        options = [parameter for parameter in own if parameter not in arguments]
        parameters = [*arguments, *(_option(field, prefix) for field in fields), *options]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # typer reads it
        return command

    return decorate


def pop_options(fields: Sequence[DeclaredField], prefix: str, options: dict[str, Any]) -> dict[str, Any]:
    """Removes the options of these fields from all options of a command. Returns those that were not left out, by the
    names of the fields."""
    values = {field.name: options.pop(prefix + field.name) for field in fields}
    return {name: value for name, value in values.items() if value is not None}


def _option(field: DeclaredField, prefix: str) -> inspect.Parameter:
    bounds: dict[str, Any] = {"min": field.setting.least, "max": field.setting.most}
    option = typer.Option(_names(field, prefix), help=_help(field), **bounds)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Parameter(prefix + field.name, kind, default=None, annotation=Annotated[field.kind | None, option])


def _names(field: DeclaredField, prefix: str) -> str:
    """Returns the names of the option: ``--max-attempts``, or ``--read-only/--no-read-only`` for what can be undone."""
    name = (prefix + field.name).removesuffix("_seconds").replace("_", "-")
    return f"--{name}/--no-{name}" if field.kind is bool and not field.setting.fixed else f"--{name}"


def _help(field: DeclaredField) -> str:
    text = without_links(field.setting.text)
    if field.kind is bool:
        text = text.removeprefix("whether ")
    limits = {
        "in seconds": field.in_seconds,
        "can only grow": field.setting.rises,
        "at creation only": field.setting.fixed,
        f"with --{field.setting.needs}": field.setting.needs,
    }
    listed = "; ".join([text, *(limit for limit, holds in limits.items() if holds)])
    return f"{listed[0].upper()}{listed[1:]}{_default(field)}."


def _default(field: DeclaredField) -> str:
    if field.kind is bool or field.default is None:
        return ""
    shown = f"{field.default:,.15g}" if isinstance(field.default, int | float) else field.default
    return f" ({shown} by default{field.setting.zero and ': '}{field.setting.zero})"
