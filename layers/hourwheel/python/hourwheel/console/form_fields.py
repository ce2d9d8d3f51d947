"""Describes the settings of a resource to the forms of the console."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from hourwheel.model.settings import DeclaredField, without_links


class FormField(Struct, frozen=True, kw_only=True):
    """A setting as a form shows it: see ``Setting``."""

    name: str
    title: str
    text: str
    default: str | int | float | bool | None
    choices: tuple[str, ...]
    """The words that it takes; none if it takes something else."""

    least: float | None
    most: float | None
    fractions: bool
    """Whether its number may have a fraction."""

    zero: str
    fixed: bool
    needs: str
    rises: bool


def form_fields(fields: Iterable[DeclaredField]) -> tuple[FormField, ...]:
    """Returns declared settings as a form shows them."""
    return tuple(
        msgspec.convert(
            {
                **field.setting._asdict(),
                "text": without_links(field.setting.text),
                "name": field.name,
                "default": field.default,
                "choices": field.choices,
                "fractions": field.kind is float,
            },
            FormField,
        )
        for field in fields
    )
