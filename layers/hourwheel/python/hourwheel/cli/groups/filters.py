"""Parses the options for the tag filter of a group."""

from typing import Annotated

import typer

from hourwheel.client import NO_FILTER, TagFilter
from hourwheel.client.records.groups import NoFilter

TagsAnyOption = Annotated[
    str | None, typer.Option(metavar="TAG,…", help="Take only messages with at least one of these tags.")
]
TagsAllOption = Annotated[str | None, typer.Option(metavar="TAG,…", help="Take only messages with all of these tags.")]
TagsNoneOption = Annotated[
    str | None, typer.Option(metavar="TAG,…", help="Take only messages with none of these tags.")
]
NoFilterOption = Annotated[bool, typer.Option("--no-filter", help="Remove the filter: take all messages.")]


def filter_of(
    tags_any: str | None, tags_all: str | None, tags_none: str | None, *, remove: bool
) -> TagFilter | NoFilter | None:
    """Returns the filter, ``NO_FILTER`` to remove that of the group, or None to keep it. Raises ``typer.BadParameter``
    for tags together with ``--no-filter``, and for options without any tag."""
    texts = {"tags_any": tags_any, "tags_all": tags_all, "tags_none": tags_none}
    tags = {name: _tags(text) for name, text in texts.items() if text is not None}
    if remove and tags:
        raise typer.BadParameter("--no-filter stands alone: leave out --tags-any, --tags-all and --tags-none")
    if remove:
        return NO_FILTER
    if tags and not any(tags.values()):
        raise typer.BadParameter("these options name no tag; --no-filter removes a filter")
    return TagFilter(**tags) if tags else None


def _tags(text: str) -> tuple[str, ...]:
    return tuple(tag for part in text.split(",") if (tag := part.strip()))
