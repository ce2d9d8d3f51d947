"""Builds HTML that is safe by construction: text is escaped unless it is markup already."""

import re
from html import escape
from typing import TypeAlias

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Content: TypeAlias = "str | Markup | int | float | None"


def markup(content: Content) -> Markup:
    if isinstance(content, Markup):
        return content
    # HTML allows no control characters; keys and ids may have them.
    return Markup(escape(_CONTROLS.sub("\ufffd", "" if content is None else str(content))))


def join(*contents: Content) -> Markup:
    return Markup("".join(markup(content) for content in contents))


def tag(name: str, *contents: Content, **attributes: Content) -> Markup:
    """Returns an element. An underscore in an attribute's name stands for a dash; at its end it is dropped
    (``class_``)."""
    named = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    attributes_text = "".join(f' {key}="{markup(value)}"' for key, value in named)
    return Markup(f"<{name}{attributes_text}>{join(*contents)}</{name}>")


def table(caption: str, heads: list[str], rows: list[list[Content]]) -> Markup:
    """Returns a table with a scroll bar of its own if it is wide."""
    head = tag("tr", *(tag("th", text, scope="col") for text in heads))
    body = (tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    element = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", element, class_="table", tabindex="0", role="region", aria_label=caption)
