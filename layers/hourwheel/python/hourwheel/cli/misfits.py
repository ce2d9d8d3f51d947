"""Says in sentences of Hourwheel what is wrong with the value of an option or an argument."""

from typing import Any

import typer

_KINDS: dict[Any, str] = {int: "a whole number", float: "a number"}


def describe_misfit(error: typer.BadParameter) -> None:
    """Replaces the message of a decoder by a sentence that names the allowed values. Leaves other messages."""
    descriptor: Any = getattr(error.param, "type_descriptor", None)
    if descriptor is None or not hasattr(error.__cause__, "errors"):  # no message of pydantic, which is slow to import
        return
    if descriptor.choices is not None:
        names = [str(getattr(choice, "value", choice)) for choice in descriptor.choices]
        error.message = f"must be {'one of ' * (len(names) > 1)}{', '.join(names)}"
    elif descriptor.annotation in _KINDS:
        low, high = descriptor.parameter_info.min, descriptor.parameter_info.max
        error.message = f"must be {_KINDS[descriptor.annotation]}{_range(low, high)}"


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low:,} to {high:,}"
    if low is not None:
        return f" of at least {low:,}"
    return "" if high is None else f" of at most {high:,}"
